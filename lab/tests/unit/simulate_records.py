"""Logs of runs, made up: what the audit is to judge."""

import json
from collections.abc import Iterable
from pathlib import Path

from spanmq_lab.simulate.audit import Audit, Check
from spanmq_lab.simulate.options import Options
from spanmq_lab.simulate.record import Record

# What one delivery takes by the server's clock, and how long its lease lasts.
LEASE = 5.0


class Log:
    """Writes what a run would have written; time goes on by a hundredth of a second a record."""

    def __init__(self, **options: object) -> None:
        self.options = Options.from_record({"engine": "spanmq", **options})
        self.records: list[Record] = []
        self.write("run_started", options=self.options.as_record())

    def write(self, event: str, **values: object) -> Record:
        record = {"event": event, "at": len(self.records) / 100, **values}
        self.records.append(record)
        return record

    def send(
        self, message: int, number: int, *, key: str = "1", producer: int = 0, poison: bool = False
    ) -> None:
        more = {"poison": True} if poison else {}
        self.write("sending", producer=producer, id=message, type="type1", key=key, number=number, **more)
        self.write("sent", producer=producer, ids=[message])

    def start(self, message: int, *, worker: int = 0, taken_at: float | None = 100.0) -> Record:
        until = None if taken_at is None else taken_at + LEASE
        return self.write("started", worker=worker, id=message, attempt=1, taken_at=taken_at, until=until)

    def done(self, message: int, *, worker: int = 0) -> Record:
        return self.write("done", worker=worker, id=message)

    def handle(self, *messages: int, worker: int = 0, taken_at: float | None = 100.0) -> None:
        for message in messages:
            self.start(message, worker=worker, taken_at=taken_at)
            self.done(message, worker=worker)

    def stop(self, ending: str = "complete") -> None:
        self.write("run_stopped", ending=ending, lines=len(self.records))

    def save(self, path: Path) -> Path:
        path.write_text("".join(f"{json.dumps(record)}\n" for record in self.records))
        return path

    def failed(self, *, left: int | None = None, torn: int = 0) -> dict[str, Check]:
        return failed(self.records, self.options, left=left, torn=torn)


def failed(
    records: Iterable[Record], options: Options, *, left: int | None = None, torn: int = 0
) -> dict[str, Check]:
    """Judge, and give the checks that failed, by name."""
    audit, written = Audit(options), list(records)
    for record in written:
        audit.add(record)
    is_complete, ended_at = audit.ending == "complete", written[-1]["at"]
    checks = audit.checks(
        is_complete=is_complete, left=left, lines=len(written), torn=torn, ended_at=ended_at
    )
    return {check.name: check for check in checks if not check.passed}
