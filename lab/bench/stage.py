"""What the cases play on: the contestants, their databases, the load generator, and the record of results."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median

from lab.bench import processor, results
from lab.bench.contestants import Contestant
from lab.bench.database import Database, Probe
from lab.bench.load import Generator, Load
from lab.bench.plan import Plan, selects
from lab.bench.results import LATENCY, RATE, Measurement
from lab.bench.scripts import VARIABLES


def window_ends(windows: tuple[int, int]) -> Iterator[None]:
    """Return at the end of each window from now on: how many, and of how many seconds each."""
    count, seconds = windows
    began_at = time.monotonic()
    for number in range(1, count + 1):
        time.sleep(max(0.0, began_at + number * seconds - time.monotonic()))
        yield


@dataclass(frozen=True, slots=True)
class Experiment:
    """What is set up once and measures one or more cases. `run` measures those that are wanted."""

    cases: tuple[str, ...]
    run: Callable[[Stage, Sequence[str]], None]


@dataclass(slots=True)
class Stage:
    """Runs the contestants in turn and keeps what they did."""

    plan: Plan
    contestants: tuple[Contestant, ...]
    databases: Mapping[str, Database]
    generator: Generator
    measurements: list[Measurement] = field(default_factory=list)
    started_at: float = field(default_factory=time.monotonic)

    def play(self, experiments: Iterable[Experiment], patterns: Sequence[str]) -> None:
        """Run every experiment of which a case is wanted."""
        for experiment in experiments:
            cases = [case for case in experiment.cases if selects(patterns, case)]
            if cases:
                experiment.run(self, cases)

    def rounds(self, count: int) -> Iterator[tuple[int, Contestant, Database]]:
        """Return the contestants in turn, each round beginning with the next: a, b, c, then b, c, a, …"""
        for number in range(count):
            first = number % len(self.contestants)
            for contestant in self.contestants[first:] + self.contestants[:first]:
                yield number + 1, contestant, self.databases[contestant.database]

    def everywhere(self, act: Callable[[Database], object]) -> None:
        """Do the same in all databases at the same time."""
        with ThreadPoolExecutor(len(self.databases)) as pool:
            for done in [pool.submit(act, database) for database in self.databases.values()]:
                done.result()

    @contextmanager
    def backlog(self, label: str, *fillings: str) -> Iterator[None]:
        """Have a queue filled by the procedures of bench.sql in every database, and drop it at the end."""

        def fill(database: Database) -> None:
            started_at = time.monotonic()
            database.create_queue()
            for filling in fillings:
                database.fill(filling)
            database.calm()
            self.note(f"{label}: {database.name} filled in {time.monotonic() - started_at:.1f} s")

        self.everywhere(fill)
        try:
            yield
        finally:
            self.everywhere(Database.drop_queue)
            self.everywhere(Database.calm)

    def load(
        self,
        case: str,
        round_number: int,
        contestant: Contestant,
        script: str,
        *,
        messages: int,
        clients: int,
        sending: bool = True,
        settling: bool = True,
        seconds: int = 0,
        transactions: int = 0,
        windows: tuple[int, int] = (0, 0),
        reconnecting: bool = False,
        runs_per_second: int = 0,
    ) -> Load:
        """Run a script against a contestant, and record messages settled a second (or only sent).

        `messages`: how many one run of the script handles. `windows`: how many, and of how many seconds each;
        then the value is the rate of the last one.
        """
        database = self.databases[contestant.database]
        before, waiting_before = database.totals(), database.waiting()
        count, width = windows
        server = processor.server_of(database.dsn)
        used_before = processor.seconds_of(server) if server else math.nan
        with database.maintained():
            load = self.generator.run(
                database.dsn,
                script,
                clients=clients,
                # One second more, or the last window's line may not come any more.
                seconds=count * width + 1 if count else seconds,
                transactions=transactions,
                window_seconds=width,
                reconnecting=reconnecting,
                runs_per_second=runs_per_second,
                variables=VARIABLES,
            )
        after, waiting_after = database.totals(), database.waiting()
        # Now that the sessions of the load have ended: a process that is ending is counted nowhere.
        used = (processor.seconds_of(server) if server else math.nan) - used_before
        sent = load.transactions * messages if sending else 0
        settled = sent + waiting_before - waiting_after if settling else sent
        rates = tuple(window * messages for window in load.windows[:count])
        value = rates[-1] if rates else settled / load.seconds
        details = {
            results.PROCESSOR_US: used * 1e6 / max(settled, 1),
            results.WAL_BYTES: (after.wal_position - before.wal_position) / max(settled, 1),
            results.DEAD_TUPLES: float(after.dead_tuples),
            results.STORED_BYTES: float(after.bytes),
            results.GENERATOR_SHARE: load.processor_share,
            results.CYCLE_MS: load.latency_ms,
        }
        if sending and settling:
            details[results.SETTLED_SHARE] = settled / max(sent, 1)
        if not sending:
            details[results.MESSAGES_PER_TAKE] = settled / max(load.transactions, 1)
            details[results.DRAINED] = float(waiting_after == 0)
        if rates:
            details[results.FIRST_WINDOW] = rates[0]
            details[results.LAST_TO_FIRST] = rates[-1] / rates[0] if rates[0] else 0.0
        self.record(Measurement(case, contestant.name, round_number, value, RATE, details, rates))
        return load

    def latency(self, case: str, statements: Mapping[str, str], *, rows: int | None = None) -> None:
        """Time single calls of the contestants that have a statement, in turn, each in a session of its own.

        The first call is that of a fresh session; it is kept beside, not in the median.
        """
        players = [contestant for contestant in self.contestants if contestant.name in statements]
        probes = {player.name: Probe(self.databases[player.database]) for player in players}
        times: dict[str, list[float]] = {player.name: [] for player in players}
        try:
            for _ in range(self.plan.calls + 1):
                for player in players:
                    times[player.name].append(probes[player.name].call_ms(statements[player.name], rows=rows))
        finally:
            for probe in probes.values():
                probe.close()
        for player in players:
            first, *others = times[player.name]
            details = {results.FIRST_CALL_MS: first, results.SLOWEST_MS: max(others)}
            self.record(Measurement(case, player.name, 1, median(others), LATENCY, details))

    def record(self, measurement: Measurement) -> None:
        """Keep a measurement, and show it."""
        self.measurements.append(measurement)
        value = f"{measurement.value:,.0f}" if measurement.unit == RATE else f"{measurement.value:,.3f}"
        self.note(f"{measurement.case}: {measurement.contestant} {value} {measurement.unit}")

    def note(self, text: str) -> None:
        """Say on standard error what goes on."""
        print(f"{time.monotonic() - self.started_at:7.1f} s  {text}", file=sys.stderr, flush=True)
