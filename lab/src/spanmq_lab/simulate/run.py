"""One run from its start to its audit."""

import contextlib
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from spanmq.errors import InvalidArgumentError, SpanmqError
from spanmq_lab.simulate.audit import Audit
from spanmq_lab.simulate.crew import Crew, CrewError
from spanmq_lab.simulate.display import Display
from spanmq_lab.simulate.engines import Stage, stage_of
from spanmq_lab.simulate.load import read_source
from spanmq_lab.simulate.options import Options, Site
from spanmq_lab.simulate.record import Reader, Recorder, begin_log
from spanmq_lab.simulate.report import Report, make_report
from spanmq_lab.simulate.server import ServerProbe

TICK_SECONDS: Final = 0.05
SHOW_SECONDS: Final = 0.25
DEAD_SECONDS: Final = 0.5

# Called with each line of the log.
Echo = Callable[[bytes], None]


@dataclass
class Run:
    """A run of one engine on a database; it ends early when `stop` returns true."""

    site: Site
    stage: Stage
    server: ServerProbe
    display: Display
    stop: Callable[[], bool]
    echo: Echo | None

    def __post_init__(self) -> None:
        """Begin the log."""
        self._options = self.site.options
        self._recorder = Recorder(self.site.log, began=self.site.began)
        self._reader = Reader(self.site.log)
        self._audit = Audit(self._options)
        self._crew = Crew(self.site, self._recorder)
        self._shown_at = 0.0
        self._moved_at = 0.0
        self._began_at = 0.0
        self._dead_at = 0.0

    def run(self) -> Report:
        """Run, and return the report.

        Raises SpanmqError if the run could not be started, or no worker stayed alive.
        """
        self._recorder.write("run_started", options=self._options.as_record())
        try:
            ending = self._work()
        except KeyboardInterrupt:
            self._crew.kill()
            raise
        except CrewError as error:
            self._read()
            why = self._audit.failures[-1] if self._audit.failures else "killed from outside?"
            raise SpanmqError(f"{error}: {why}", hint=f"The log until then is in {self.site.log}.") from error
        finally:
            self.display.close()
            self._crew.stop()
        ended_at = self._recorder.now()
        self._note_dead()
        # All processes that write have ended: from here on the count is final.
        self._read()
        self._recorder.write("run_stopped", ending=ending, lines=self._reader.count)
        self._read()
        left = self.stage.left()
        after = self.server.look(self.stage.tables)
        return make_report(
            self._audit,
            self._options,
            ending=ending,
            ended_at=ended_at,
            left=left,
            lines=self._reader.count,
            torn=self._reader.torn + self._reader.has_rest(),
            before=self._before,
            after=after,
        )

    def _work(self) -> str:
        self._before = self.server.look(self.stage.tables)
        if self._options.connections > self._before.connections:
            raise InvalidArgumentError(
                f"{self._options.workers} workers need {self._options.connections} connections,"
                f" and the server has {self._before.connections}",
                hint="Use fewer workers, or raise the server's max_connections.",
            )
        if self._options.hold_snapshot:
            self.server.hold_snapshot()
        if self._options.rate is None:
            self._crew.start_producers()
            while not self._crew.producers_ended():
                if self.stop():
                    return "interrupted"
                self._step("writing")
            self._read()
        self.stage.begin()
        self._crew.start_workers()
        while self._audit.counts["worker_ready"] < self._options.workers:
            if self.stop():
                return "interrupted"
            self._step("starting")
            self._watch()
        self._recorder.write("workers_started")
        self._moved_at = self._began_at = self._recorder.now()
        self._crew.go()
        if self._options.rate is not None:
            self._crew.start_producers()
        while (ending := self._ending()) is None:
            self._watch()
        return ending

    def _watch(self) -> None:
        self._crew.watch(self._audit.handled)
        now = self._recorder.now()
        kills = self._options.poison_kills or self._options.kill_every is not None
        if kills and now - self._dead_at >= DEAD_SECONDS:
            self._dead_at = now
            self._note_dead()
        if self._audit.counts["failure is final"]:
            raise InvalidArgumentError(self._audit.failures[-1])

    def _ending(self) -> str | None:
        # In this order: messages that are sent in between are seen in the next round.
        all_sent = self._crew.producers_ended()
        self._step("handling")
        now = self._recorder.now()
        if all_sent and self._audit.waiting <= 0:
            return "complete"
        if self.stop():
            return "interrupted"
        if self._options.duration is not None and now - self._began_at >= self._options.duration:
            return "time"
        patience = max(self._options.patience, self._options.quiet_seconds)
        return "stalled" if now - self._moved_at > patience else None

    def _step(self, what: str) -> None:
        time.sleep(TICK_SECONDS)
        self._read()
        now = self._recorder.now()
        if now - self._shown_at >= SHOW_SECONDS:
            self._shown_at = now
            self.display.show(what, self._audit, now)

    def _read(self) -> None:
        before = self._audit.last_at
        for line in self._reader.lines():
            if self.echo is not None:
                self.echo(line + b"\n")
            if (record := self._reader.parse(line)) is not None:
                self._audit.add(record)
        if self._audit.last_at != before or self._audit.waiting <= 0:
            self._moved_at = self._recorder.now()

    def _note_dead(self) -> None:
        """Record the messages that became dead without a live worker to record it."""
        if ids := self.stage.new_dead():
            self._recorder.write("dead", ids=ids)


def run(
    dsn: str,
    options: Options,
    *,
    log: Path,
    display: Display,
    stop: Callable[[], bool] = lambda: False,
    echo: Echo | None = None,
) -> Report:
    """Run once on the database of `dsn`, and write a new log."""
    if options.source is not None and next(read_source(options), None) is None:
        raise InvalidArgumentError(f"{options.source} has no rows")
    begin_log(log)
    with contextlib.ExitStack() as stack:
        site = Site(dsn, f"simulate_{secrets.token_hex(3)}", log, time.monotonic(), options)
        server = stack.enter_context(contextlib.closing(ServerProbe(dsn)))
        stage = stack.enter_context(contextlib.closing(stage_of(site)))
        if not options.keep:
            stack.callback(stage.drop)
        stage.prepare()
        report = Run(site, stage, server, display, stop, echo).run()
        if options.keep:
            display.say(f"kept: {', '.join(stage.places)}")
        return report


def read_log(log: Path) -> Report:
    """Audit the log of an earlier run."""
    if not os.access(log, os.R_OK):
        raise InvalidArgumentError(f"the log {log} cannot be read")
    reader = Reader(log)
    records = reader.records()
    first = next(records, None)
    if first is None or first["event"] != "run_started":
        raise SpanmqError(f"{log} is not the log of a run")
    options = Options.from_record(first["options"])
    audit = Audit(options)
    ended_at = 0.0
    for record in records:
        audit.add(record)
        ended_at = record["at"]
    return make_report(
        audit,
        options,
        ending="log",
        ended_at=ended_at,
        lines=reader.count,
        torn=reader.torn + reader.has_rest(),
    )
