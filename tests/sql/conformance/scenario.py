"""Scenarios: plain SQL that is run on upstream PGMQ and here, statement by statement, and must do the same.

A file of scenarios looks so:

    -- scenario: a message that was read is hidden
    select * from pgmq.send('orders', '{"a": 1}');
    -- in order
    select * from pgmq.read('orders', 100, 1);

There is a queue `orders`, unless the first statement creates one. A statement ends at a semicolon at the end of
a line. Rows are compared as a set unless `-- in order` stands before the statement. Where a difference is meant,
comments before the statement say why, and what each of the two does, a line each (`nothing` for no rows):

    -- differs: W15
    -- upstream: null
    -- here: error MQ001: queue name cannot be NULL or empty
    select pgmq.create('');

After `-- session: other`, a statement runs in a second session, where the runner has one.

Times are written relative to the statement and rounded to 100 seconds, so that scenarios compare on slow
machines: `now`, `now+200s`. Columns that end in `_sec` are rounded likewise.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
from tests.sql.queue import Connection

TIME_GRAIN_SECONDS = 100
# Farther from now than any delay of a scenario: a date that was given as such.
ABSOLUTE_AFTER = timedelta(days=30)
# What CREATE … IF NOT EXISTS and its like say depends on how the thing is made.
NOISE = re.compile(r"skipping$|will be truncated")


@dataclass(frozen=True, slots=True)
class Statement:
    text: str
    line: int
    in_order: bool
    differs: str | None
    upstream: tuple[str, ...]
    here: tuple[str, ...]
    session: str = "first"


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    file: str
    statements: tuple[Statement, ...]

    @property
    def has_orders(self) -> bool:
        """Return whether it begins with a queue `orders`."""
        return "pgmq.create" not in self.statements[0].text


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a statement did: columns as (name, type), and lines of rows, warnings and errors."""

    columns: tuple[tuple[str, str], ...]
    lines: tuple[str, ...]


def read_scenarios(folder: Path) -> list[Scenario]:
    """Read all scenarios of a folder, by file and place."""
    return [scenario for path in sorted(folder.glob("*.sql")) for scenario in parse(path)]


def parse(path: Path) -> Iterator[Scenario]:
    name = ""
    statements: list[Statement] = []
    notes: dict[str, list[str]] = {}
    text: list[str] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not text and line.startswith("--"):
            key, _, value = line.removeprefix("--").strip().partition(": ")
            if key == "scenario":
                if name:
                    yield Scenario(name, path.stem, tuple(statements))
                name, statements = value, []
            elif key in ("in order", "differs", "upstream", "here", "session"):
                notes.setdefault(key, []).append(value)
            continue
        if not line.strip():
            continue
        text.append(line)
        if line.endswith(";"):
            assert bool(notes.get("differs")) == bool(notes.get("upstream")) == bool(notes.get("here")), (
                f"{path.name}:{number}: a difference says why, what upstream does and what happens here"
            )
            statements.append(
                Statement(
                    text="\n".join(text),
                    line=number,
                    in_order="in order" in notes,
                    differs=" ".join(notes["differs"]) if "differs" in notes else None,
                    upstream=tuple(each for each in notes.get("upstream", []) if each != "nothing"),
                    here=tuple(each for each in notes.get("here", []) if each != "nothing"),
                    session=notes.get("session", ["first"])[0],
                )
            )
            text, notes = [], {}
    assert not text, f"{path.name} ends within a statement"
    yield Scenario(name, path.stem, tuple(statements))


def run(connection: Connection, statement: Statement) -> Outcome:
    """Run one statement in autocommit mode (unless the scenario began a transaction) and say what it did."""
    lines: list[str] = []

    def keep(diagnostic: psycopg.errors.Diagnostic) -> None:
        if not NOISE.search(diagnostic.message_primary or ""):
            lines.append(f"{(diagnostic.severity or '').lower()}: {diagnostic.message_primary}")

    columns: tuple[tuple[str, str], ...] = ()
    connection.add_notice_handler(keep)
    started_at = datetime.now(UTC)
    try:
        cursor = connection.execute(statement.text.encode())
        if cursor.description is not None:
            columns = tuple((each.name, each.type_display) for each in cursor.description)
            rows = [
                " | ".join(
                    render(value, column[0], started_at) for column, value in zip(columns, row, strict=True)
                )
                for row in cursor.fetchall()
            ]
            lines += rows if statement.in_order else sorted(rows)
    except psycopg.Error as error:
        columns = ()
        lines.append(f"error {error.sqlstate}: {error.diag.message_primary}")
    finally:
        connection.remove_notice_handler(keep)
    return Outcome(columns, tuple(lines))


def render(value: object, column: str, started_at: datetime) -> str:
    """Write a value so that two runs of a scenario can be compared."""
    if value is None:
        return "null"
    if isinstance(value, datetime):
        if abs(value - started_at) > ABSOLUTE_AFTER:
            return value.astimezone(UTC).isoformat()
        seconds = round((value - started_at).total_seconds() / TIME_GRAIN_SECONDS) * TIME_GRAIN_SECONDS
        return f"now{seconds:+}s" if seconds else "now"
    if isinstance(value, int) and column.endswith("_sec"):
        return str(round(value / TIME_GRAIN_SECONDS) * TIME_GRAIN_SECONDS)
    if isinstance(value, dict | list):
        return json.dumps(value, sort_keys=True, default=str)
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) or "''"


def is_same(upstream: Outcome, here: Outcome) -> bool:
    """Return whether both did the same."""
    return upstream.columns == here.columns and upstream.lines == here.lines


def run_program(upstream: Connection, here: Connection, steps: list[str], *, ordered: str = "\0") -> None:
    """Run a program on both; rows of steps in which `ordered` stands are compared in their order."""
    for number, text in enumerate(steps):
        statement = Statement(text, number, in_order=ordered in text, differs=None, upstream=(), here=())
        assert run(here, statement) == run(upstream, statement), "\n".join(
            f"{each};" for each in steps[: number + 1]
        )
