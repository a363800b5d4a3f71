"""A hundred patterns of programs that use PGMQ's tables and catalogue, beside PGMQ as an extension.

Here, table grants are followed, and the extension is registered. The guide says how many do the same; each one that
differs names the row of the guide that says what to do instead.
"""

import re
import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
import pytest
from tests.sql.conformance.scenario import Outcome, Scenario, Statement, read_scenarios, run
from tests.sql.conformance.test_scenarios import GUIDE, SCENARIOS, compare
from tests.sql.queue import Connection
from tests.sql.schema.extension_files import use_folder, write_upstream

from spanmq import schema
from spanmq.testing.databases import new_database, with_database

PATTERNS = read_scenarios(Path(__file__).parent / "patterns")
ROLES = ("pattern_role", "pattern_other")


@dataclass(frozen=True, slots=True)
class Side:
    """Two sessions of a database, and the names that roles of patterns have there."""

    first: Connection
    other: Connection
    roles: dict[str, str]

    def run(self, statement: Statement) -> Outcome:
        """Run a statement in its session; say what it did, with the roles' names of the pattern."""
        text = statement.text
        for name, real in self.roles.items():
            text = text.replace(name, real)
        outcome = run(getattr(self, statement.session), replace(statement, text=text))
        lines = outcome.lines
        for name, real in self.roles.items():
            lines = tuple(line.replace(real, name) for line in lines)
        return Outcome(outcome.columns, lines)


@pytest.fixture(scope="session")
def roles(spanmq_server: str) -> Iterator[dict[str, str]]:
    names = {name: f"{name}_{secrets.token_hex(6)}" for name in ROLES}
    with psycopg.connect(spanmq_server, autocommit=True) as connection:
        for name in names.values():
            connection.execute(f"create role {name}".encode())
        yield names
        for name in names.values():
            connection.execute(f"drop role {name}".encode())


@pytest.fixture(scope="session")
def templates(
    spanmq_server: str, spanmq_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, tuple[str, Path]]]:
    """The databases from which each pattern gets copies, and the folders of their extensions."""
    import tempfile

    with ExitStack() as stack:
        result = {}
        for side, template in (("upstream", None), ("here", spanmq_template)):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            folder.chmod(0o755)
            if side == "upstream":
                write_upstream(folder)
            else:
                schema.write_extension(folder)
            name = stack.enter_context(new_database(spanmq_server, template=template))
            dsn = with_database(spanmq_server, name)
            use_folder(dsn, folder)
            with psycopg.connect(dsn, autocommit=True) as connection:
                if side == "here":
                    connection.execute("select spanmq.follow_table_grants()")
                connection.execute("create extension pgmq")
            result[side] = (name, folder)
        yield result


@pytest.fixture
def sides(
    spanmq_server: str, templates: dict[str, tuple[str, Path]], roles: dict[str, str]
) -> Iterator[dict[str, Side]]:
    with ExitStack() as stack:
        result = {}
        for side, (template, folder) in templates.items():
            dsn = with_database(
                spanmq_server, stack.enter_context(new_database(spanmq_server, template=template))
            )
            sessions = [stack.enter_context(psycopg.connect(dsn, autocommit=True)) for _ in range(2)]
            for session in sessions:
                session.execute(
                    "select set_config('extension_control_path', %s || ':$system', false)", [str(folder)]
                )
            sessions[1].execute("set lock_timeout = '100ms'")
            result[side] = Side(sessions[0], sessions[1], roles)
        yield result
        for done in result.values():
            done.first.execute("rollback; reset all")
            done.first.execute(f"drop owned by {', '.join(roles.values())} cascade".encode())


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name.partition(" ")[0])
def test_pattern(pattern: Scenario, sides: dict[str, Side]) -> None:
    if pattern.has_orders:
        for side in sides.values():
            side.first.execute("select pgmq.create('orders')")
    compare(pattern, sides["upstream"].run, sides["here"].run)


def test_there_are_a_hundred_patterns() -> None:
    ids = sorted(int(pattern.name.partition(" ")[0].removeprefix("p")) for pattern in PATTERNS)
    assert ids == list(range(1, 101))


def test_guide_says_how_many_patterns_do_the_same() -> None:
    same = sum(all(made.differs is None for made in pattern.statements) for pattern in PATTERNS)
    (stated,) = re.findall(r"(\d+) of a hundred patterns", GUIDE.read_text("utf-8"))
    assert int(stated) == same
    assert same >= 50


def test_each_pattern_that_differs_is_a_row_of_the_guide() -> None:
    guide = GUIDE.read_text("utf-8")
    # Those of single statements, too.
    patterns = [*PATTERNS, *(scenario for scenario in SCENARIOS if scenario.file == "patterns")]
    assert len(patterns) > len(PATTERNS) + 20
    differences = {made.differs for pattern in patterns for made in pattern.statements if made.differs}
    assert {difference for difference in differences if f"\n| {difference} |" not in guide} == set()
