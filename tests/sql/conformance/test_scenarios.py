"""What PGMQ does, this does: the scenarios of the folder `scenarios`, run side by side."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.sql.conformance.conftest import Pair
from tests.sql.conformance.scenario import Outcome, Scenario, Statement, is_same, read_scenarios, run

SCENARIOS = read_scenarios(Path(__file__).parent / "scenarios")
GUIDE = Path(__file__).parents[3] / "docs/guides/pgmq.md"


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: f"{scenario.file}: {scenario.name}")
def test_scenario_does_what_pgmq_does(scenario: Scenario, pair: Pair) -> None:
    if scenario.has_orders:
        for connection in (pair.upstream, pair.here):
            connection.execute("select pgmq.create('orders')")
    compare(scenario, partial(run, pair.upstream), partial(run, pair.here))


def compare(
    scenario: Scenario, upstream: Callable[[Statement], Outcome], here: Callable[[Statement], Outcome]
) -> None:
    """Run the statements on both sides, and fail with all that do not do what the scenario says."""
    problems = []
    for statement in scenario.statements:
        theirs, ours = upstream(statement), here(statement)
        if statement.differs is None:
            fine = is_same(theirs, ours)
        else:
            fine = theirs.lines == statement.upstream and ours.lines == statement.here
        if not fine:
            problems.append(describe(f"{scenario.file}.sql:{statement.line}", statement.text, theirs, ours))
    assert not problems, "\n".join(problems)


def describe(place: str, text: str, upstream: Outcome, here: Outcome) -> str:
    lines = [place, text]
    if upstream.columns != here.columns:
        lines += [f"-- columns upstream: {upstream.columns}", f"-- columns here: {here.columns}"]
    lines += [f"-- upstream: {line}" for line in upstream.lines or ("nothing",)]
    lines += [f"-- here: {line}" for line in here.lines or ("nothing",)]
    return "\n".join(lines) + "\n"


def test_scenario_names_are_unique() -> None:
    names = [(scenario.file, scenario.name) for scenario in SCENARIOS]
    assert len(set(names)) == len(names)
