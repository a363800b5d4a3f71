"""Every action against every other on the same messages: one open, the other meets it, the first ends.

Whatever the order: no message is settled or delivered twice, none is lost, and who asks for messages by their
ids gets all that the other left, also what it has moved to another table meanwhile.

`make test` runs a few of a fifth of the pairs, the same each time, `make test-deep` all of them.
"""

import itertools
import random
from collections.abc import Iterator

import pytest
from tests.sql.race.actions import ACTIONS, Action, Asks
from tests.sql.race.sessions import Race
from tests.sql.race.stage import STATES, SUSPECT, Done, Stage, applies, finish, must_find, problems_of, start
from tests.sql.seeds import IS_DEEP

TRIPLES = 60 if IS_DEEP else 12


def pairs(state: str, *, every: bool) -> Iterator[tuple[Action, Action]]:
    """Yield pairs of a first and a second action: every one, or a fifth in which each action is both."""
    actions = [each for each in ACTIONS.values() if applies(each, state)]
    for i, j in itertools.product(range(len(actions)), repeat=2):
        if every or (i + j + STATES.index(state)) % 5 == 0:
            yield actions[i], actions[j]


@pytest.mark.parametrize("state", STATES)
def test_fifth_of_the_pairs_has_each_action_first_and_second(state: str) -> None:
    fifth = list(pairs(state, every=False))
    actions = {each.name for each in ACTIONS.values() if applies(each, state)}
    assert [{each[place].name for each in fifth} for place in (0, 1)] == [actions, actions]
    assert len(fifth) <= len(list(pairs(state, every=True))) / 4.8


@pytest.mark.deeper
@pytest.mark.parametrize(
    ("state", "first_name"),
    [(state, name) for state in STATES for name, each in ACTIONS.items() if applies(each, state)],
)
def test_second_action_meets_the_first(database: str, first_name: str, state: str) -> None:
    first = ACTIONS[first_name]
    problems = []
    with Race(database) as race:
        one, two = race.open(), race.open()
        seconds = [second for each, second in pairs(state, every=IS_DEEP) if each is first]
        given_back = itertools.cycle((0, 6, 3, 0))
        for second, fate in itertools.product(seconds, ("commit", "rollback")):
            # A claim never waits, so it does not matter to it how the other ends.
            if second.asks is Asks.ANY and fate == "rollback":
                continue
            stage = Stage.make(race, state, given_back=next(given_back))
            one.begin()
            first_done = finish(first, start(one, first, race, stage))
            later = start(two, second, race, stage)
            waited = later.waits()
            one.end(fate)
            second_done = finish(second, later)
            done = [first_done, second_done] if fate == "commit" else [second_done]
            found = problems_of(race, stage, done)
            undone = Done(ACTIONS["give back part"], [])
            wanted = must_find(second, first_done if fate == "commit" else undone, stage, state)
            if wanted is not None and set(second_done.ids) != wanted:
                found.append(f"got {second_done.ids}, should have got {sorted(wanted)}")
            if second.asks is Asks.ANY and waited:
                found.append("waited")
            problems += [f"{state}: {first.name} ({fate}), then {second.name}: {each}" for each in found]
    assert not problems, "\n".join(problems)


@pytest.mark.deeper
@pytest.mark.parametrize("state", [*STATES, SUSPECT])
def test_two_more_meet_an_open_action(database: str, state: str) -> None:
    # A sample of the 3,000 threes, the same in every run.
    names = random.Random(state)
    possible = [each for each in ACTIONS.values() if applies(each, state)]
    problems = []
    with Race(database) as race:
        sessions = [race.open() for _ in range(3)]
        for _ in range(TRIPLES):
            actions = names.choices(possible, k=3)
            stage = Stage.make(race, state)
            sessions[0].begin()
            done = [finish(actions[0], start(sessions[0], actions[0], race, stage))]
            later = []
            for session, action in zip(sessions[1:], actions[1:], strict=True):
                later.append(start(session, action, race, stage))
                later[-1].waits()
            fate = names.choice(["commit", "commit", "rollback"])
            sessions[0].end(fate)
            if fate == "rollback":
                done = []
            done += [finish(action, each) for action, each in zip(actions[1:], later, strict=True)]
            line = ", ".join(each.name for each in actions)
            problems += [f"{state}: {line} ({fate}): {each}" for each in problems_of(race, stage, done)]
    assert not problems, "\n".join(problems)
