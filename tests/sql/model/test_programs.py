"""Random programs against the model, on real SQL; and those of `scenarios`, which failed once."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import strategies as st
from tests.sql.model.limits_program import LimitsProgram
from tests.sql.model.policy_program import POLICIES, PolicyProgram
from tests.sql.model.queue_program import RACES, QueueProgram
from tests.sql.model.recording import FOLDER, Recorded, always, replay, run_programs, step
from tests.sql.model.subscription_program import SubscriptionProgram

KINDS = ("create", "create_unlogged")


def programs() -> dict[str, Callable[[str], Recorded]]:
    """Return what makes a program on a database, by the name with which the name of its file begins."""
    every: dict[str, Callable[[str], Recorded]] = {}
    for kind in KINDS:
        every[f"queue {kind}"] = partial(QueueProgram, kind=kind)
        every[f"limits {kind}"] = partial(LimitsProgram, kind=kind)
        every[f"subscription {kind}"] = partial(SubscriptionProgram, kind=kind)
    for name, policy in POLICIES.items():
        kind = "create_unlogged" if name == "few of a group" else "create"
        every[f"policy {name}"] = partial(PolicyProgram, kind=kind, policy=policy)
    return every


PROGRAMS = programs()


@pytest.fixture
def database(spanmq_database: str) -> Iterator[str]:
    """The DSN of a new database, whose programs share their sessions."""
    yield spanmq_database
    if spanmq_database in RACES:
        RACES.pop(spanmq_database).close()


# The programs of any queue meet most of what the others do. How many of each, by the first word of the name.
FEW = {"queue": 5, "limits": 4, "subscription": 3, "policy": 2}
MANY = {"queue": 30, "limits": 100, "subscription": 10, "policy": 12}


@pytest.mark.deeper
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", PROGRAMS)
def test_queue_does_what_the_model_says(database: str, name: str) -> None:
    word = name.partition(" ")[0]
    run_programs(lambda: PROGRAMS[name](database), name, few=FEW[word], many=MANY[word])


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_saved_program_does_what_the_model_says(database: str, path: Path) -> None:
    name = max((name for name in PROGRAMS if path.stem.startswith(name)), key=len)
    machine = PROGRAMS[name](database)
    try:
        replay(machine, path)
    finally:
        machine.teardown()


class Total(Recorded):
    """A program with a fault: its total stays 0, it says."""

    total = 0

    @step(data=st.data())
    def adds_what_it_draws(self, data: st.DataObject) -> None:
        self.total += data.draw(st.sampled_from((0, 7)))

    @always()
    def is_zero(self) -> None:
        assert self.total == 0


@pytest.mark.parametrize("shrink_seconds", [45, -1])
def test_failed_program_is_saved_and_fails_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shrink_seconds: float
) -> None:
    monkeypatch.setattr("tests.sql.model.recording.SHRINK_SECONDS", shrink_seconds)
    monkeypatch.setattr("tests.sql.model.recording.SEED", 7)
    monkeypatch.setattr("tests.sql.model.recording.FOLDER", tmp_path)
    with pytest.raises(AssertionError) as raised:
        run_programs(Total, "total", few=1, many=9)
    (path,) = tmp_path.glob("total *.json")
    assert raised.value.__notes__[-1] == f"SPANMQ_TEST_SEED=7; saved as {path}"
    with pytest.raises(AssertionError):
        replay(Total(), path)
    monkeypatch.setattr(Total, "is_zero", None)
    replay(Total(), path)
