"""A search for an order of statements that breaks a promise."""

import random
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import psycopg
from psycopg.types.json import Jsonb
from tests.sql.interleave.explore import Choices, Order, chooser, further
from tests.sql.interleave.machine import Call, Machine
from tests.sql.interleave.scenes import QUEUE, Scene
from tests.sql.interleave.verdict import problems

SEND = "select pgmq.send(%s, '1', nullif(%s::jsonb, 'null'))"
# maintain() retires what the runs have left behind.
RUNS_BETWEEN_MAINTENANCE = 500


@dataclass(frozen=True, slots=True)
class Violation:
    """A run that broke a promise, with what it takes to repeat it."""

    scene: str
    order: Order
    what: tuple[str, ...]
    calls: tuple[Call, ...]

    def __str__(self) -> str:
        lines = [
            f"  {call.session}: {call.began}-{call.ended} {call.text} -> {call.rows}" for call in self.calls
        ]
        return "\n".join([f"{self.scene}, order {self.order.prefix}:", *self.what, *lines])


@dataclass(slots=True)
class Search:
    """Runs scenes on a database whose functions have steps."""

    dsn: str
    sessions: int = 3
    runs: int = 0
    steps: int = 0
    deadlocks: int = 0
    violations: list[Violation] = field(default_factory=list)
    # What ran: a scene and who went on at each choice. Two orders may come to the same run, if locks are free earlier.
    distinct: set[tuple[str, bytes]] = field(default_factory=set)
    _machine: Machine = field(init=False)
    _main: psycopg.Connection[Any] = field(init=False)

    def __post_init__(self) -> None:
        self._machine = Machine(self.dsn, self.sessions)
        self._main = psycopg.connect(self.dsn, autocommit=True)
        self._main.execute("set synchronous_commit = off")
        self._main.execute("create table if not exists public.first_ids (i bigint)")

    def scene(
        self, scene: Scene, preemptions: int, runs_max: int, chance: random.Random | None = None
    ) -> int:
        """Run a scene in its orders with at most that many preemptions; return how many runs that were.

        With more orders than `runs_max`, `chance` draws those that are run; without it, the first ones are.
        """
        self._create(scene)
        waiting, runs = [Order()], 0
        while waiting and runs < runs_max:
            order = waiting.pop(chance.randrange(len(waiting)) if chance else -1)
            waiting += further(order, self.once(scene, order), preemptions)
            runs += 1
        return runs

    def once(self, scene: Scene, order: Order) -> Choices:
        """Run a scene in one order, and keep what it broke."""
        first = self._prepare(scene)
        calls, choices = self._machine.run(scene.programs, chooser(order))
        self.runs += 1
        self.steps += len(choices)
        self.distinct.add((scene.name, bytes(chosen for _, chosen in choices)))
        self.deadlocks += any(call.sqlstate == "40P01" for call in calls)
        broken = tuple(problems(scene, first, calls, None if scene.drops else self._left()))
        if broken:
            self.violations.append(Violation(scene.name, order, broken, tuple(calls)))
        if self.runs % RUNS_BETWEEN_MAINTENANCE == 0:
            self._main.execute("select spanmq.maintain()")
        return choices

    def _create(self, scene: Scene) -> None:
        self._drop()
        self._main.execute("select pgmq.create(%s)", [QUEUE])
        if scene.policy != "{}":
            self._main.execute("select spanmq.set_policy(%s, %s)", [QUEUE, scene.policy])

    def _drop(self) -> None:
        if self._main.execute("select from pgmq.meta where queue_name = %s", [QUEUE]).fetchone() is not None:
            self._main.execute("select pgmq.drop_queue(%s)", [QUEUE])

    def _prepare(self, scene: Scene) -> list[int]:
        """Have the queue as the scene begins; return the ids of its messages."""
        if scene.drops:
            self._create(scene)
        else:
            self._main.execute("select pgmq.purge_queue(%s)", [QUEUE])
        # One by one, so that each is a row of its own.
        first = [
            int(self._main.execute(SEND, [QUEUE, Jsonb(group and {"x-pgmq-group": group})]).fetchall()[0][0])
            for group in scene.groups
        ]
        self._main.execute("truncate public.first_ids")
        self._main.execute("insert into public.first_ids select unnest(%s::bigint[])", [first])
        if scene.leased is not None:
            self._main.execute(
                "select count(*) from spanmq.receive(%s, %s, %s)", [QUEUE, len(first), scene.leased]
            )
        return first

    def _left(self) -> list[int]:
        return [
            each for (each,) in self._main.execute(f"select msg_id from pgmq.q_{QUEUE}".encode()).fetchall()
        ]

    def close(self) -> None:
        """End all sessions."""
        self._machine.close()
        self._main.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
