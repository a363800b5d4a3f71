"""A queue in daily use: all kinds of calls at a fixed rate, and how a queue of that age compares with a new one.

The load is the same on a slow machine and a busy one, so a claim is measured in processor time of its session.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from lab.bench import processor, results, scripts
from lab.bench.cases.recorded import recorded
from lab.bench.contestants import CALLS, CONTESTANTS, NATIVE, QUEUE, SPANMQ_DATABASE, Contestant
from lab.bench.database import Database
from lab.bench.results import LATENCY, STATE, Measurement
from lab.bench.stage import Experiment, Stage, window_ends

MIXED = "soak/mixed"
BACKLOG = 10_000
CLIENTS = 4
RUNS_PER_SECOND = 50
CLAIMS = 200  # whose median is a window's claim time
NEW = "bench_new"
COMPARED = (1, 100)  # sizes of batches, by 16 clients

_BY_NAME = {contestant.name: contestant for contestant in CONTESTANTS}


def experiment() -> Experiment:
    compared = [name for batch in COMPARED for name in (_aged(batch), _aged(batch) + "/new")]
    return Experiment((MIXED, f"{MIXED}/state", f"{MIXED}/claim", *compared), _run)


def _aged(batch: int) -> str:
    return f"aged/batch-{batch}/clients-16"


def _run(stage: Stage, cases: Sequence[str]) -> None:
    database = stage.databases.get(SPANMQ_DATABASE)
    if database is None:
        return
    windows = (stage.plan.soak_windows, stage.plan.soak_window_seconds)
    native = _BY_NAME[NATIVE]
    database.create_queue()
    database.fill(f"fill('{QUEUE}', {BACKLOG}, 1000)")
    sampler = _Sampler(database, windows)
    sampler.start()
    script, messages = _script()
    with recorded(stage, database):
        stage.load(
            MIXED,
            1,
            native,
            script,
            messages=messages,
            clients=CLIENTS,
            windows=windows,
            runs_per_second=RUNS_PER_SECOND,
        )
    sampler.join()
    for name, unit, values in (("state", STATE, sampler.megabytes), ("claim", LATENCY, sampler.claim_ms)):
        details = {results.LAST_TO_FIRST: values[-1] / values[0]}
        stage.record(Measurement(f"{MIXED}/{name}", NATIVE, 1, values[-1], unit, details, tuple(values)))
    for number in range(1, stage.plan.rounds + 1):
        for batch in COMPARED:
            for name, queue in ((_aged(batch), QUEUE), (_aged(batch) + "/new", NEW)):
                if name in cases:
                    _compare(stage, database, number, name, queue, batch)
    database.drop_queue()


def _compare(stage: Stage, database: Database, number: int, name: str, queue: str, batch: int) -> None:
    if queue == NEW:
        database.execute(f"select pgmq.create('{NEW}')")
        database.fill(f"fill('{NEW}', {BACKLOG}, 1000)")
    native = _BY_NAME[NATIVE]
    script = scripts.cycle(native, batch).replace(f"'{QUEUE}'", f"'{queue}'")
    stage.load(name, number, native, script, messages=batch, clients=16, seconds=stage.plan.seconds)
    if queue == NEW:
        database.execute(f"select pgmq.drop_queue('{NEW}')")


def _script() -> tuple[str, int]:
    """Return a script that runs one of many kinds, and how many messages a run sends on average.

    All that is sent is settled in the end, so the backlog stays.
    """
    native, calls = _BY_NAME[NATIVE], _BY_NAME[CALLS]
    kinds = (
        (40, 1, scripts.cycle(native, 1)),
        (20, 10, scripts.cycle(native, 10)),
        (10, 100, scripts.cycle(native, 100)),
        (10, 10, scripts.send(10) + _archive(calls)),
        (6, 1, _delayed() + scripts.take(native, 1)),
        (6, 0, _receive(10, 600) + _if_taken(_NACK)),
        (4, 0, _receive(5, 5)),  # the lease ends, and the messages come back
        (4, 1, scripts.send(1) + scripts.work(native, 0.02)),
    )
    total = sum(weight for weight, _, _ in kinds)
    script, upper = f"\\set kind random(1, {total})\n", 0
    for weight, _, text in kinds:
        script += f"\\{'elif' if upper else 'if'} :kind <= {upper + weight}\n{text}"
        upper += weight
    return script + "\\endif\n", sum(weight * sent for weight, sent, _ in kinds) // total


_NACK = f"select count(*) from spanmq.nack('{QUEUE}', :lease_id::bigint, :ids::bigint[], retry_in => 5);\n"


def _archive(contestant: Contestant) -> str:
    return scripts.take(contestant, 10).replace("pgmq.delete", "pgmq.archive")


def _delayed() -> str:
    return f"select * from pgmq.send('{QUEUE}', '{{\"later\": true}}'::jsonb, 5);\n"


def _receive(quantity: int, seconds: int) -> str:
    return (
        "select coalesce(array_agg(msg_id)::text, '') as ids, count(*) as taken, coalesce(max(lease_id), 0) as lease_id"
        f" from spanmq.receive('{QUEUE}', {quantity}, {seconds}) \\gset\n"
    )


def _if_taken(statement: str) -> str:
    return f"\\if :taken > 0\n{statement}\\endif\n"


@dataclass(slots=True)
class _Sampler:
    """Notes the size of the state and the time of a claim at the end of each window."""

    database: Database
    windows: tuple[int, int]
    megabytes: list[float] = field(default_factory=list)
    claim_ms: list[float] = field(default_factory=list)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._sample, name="sampler")
        self._thread.start()

    def join(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def _sample(self) -> None:
        for _ in window_ends(self.windows):
            self.megabytes.append(self.database.state_bytes() / 1e6)
            self.claim_ms.append(self._claim_ms())

    def _claim_ms(self) -> float:
        """Return the median processor time of a claim of one message in its session, each settled after it."""
        times = []
        with self.database.connect() as connection:
            for _ in range(CLAIMS):
                before = processor.nanoseconds_of(connection.info.backend_pid)
                row = connection.execute(
                    f"select lease_id, msg_id from spanmq.receive('{QUEUE}', 1, 600)"
                ).fetchone()
                times.append((processor.nanoseconds_of(connection.info.backend_pid) - before) / 1e6)
                if row:
                    connection.execute(f"select pgmq.send('{QUEUE}', '{{}}'::jsonb)")
                    connection.execute(f"select spanmq.ack('{QUEUE}', %s, array[%s])", row)
        return sorted(times)[len(times) // 2]
