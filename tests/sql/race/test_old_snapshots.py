"""Every action, by a caller whose snapshot is older than what another did to the same run.

REPEATABLE READ and SERIALIZABLE callers get a clean serialization failure at worst: nothing is settled or
delivered twice, nothing is lost, and what is found is all that there was to find.
"""

import random

import psycopg
import pytest
from psycopg.errors import SerializationFailure
from tests.sql.race.actions import ACTIONS, Action
from tests.sql.race.sessions import Race, Session
from tests.sql.race.stage import STATES, Done, Stage, applies, finish, must_find, problems_of, start

# Of the 1,900 pairs a sample, the same in every run.
PAIRS = 120
# Grouped reads, and whatever else can't work in an old snapshot.
REFUSED = "MQ003"


def act(session: Session, action: Action, race: Race, stage: Stage) -> Done | None:
    """Do it in the transaction that is open, and commit; None where it was refused cleanly."""
    text, arguments = action.call(race.queue, stage.ids, stage.lease)
    try:
        done = Done.of(action, [row[0] for row in session.rows(text, arguments)])
        session.commit()
    except psycopg.Error as error:
        session.rollback()
        if isinstance(error, SerializationFailure) or error.sqlstate == REFUSED:
            return None
        raise
    return done


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
@pytest.mark.parametrize("state", STATES)
def test_old_snapshot_is_right_or_fails_cleanly(database: str, state: str, isolation: str) -> None:
    possible = [each for each in ACTIONS.values() if applies(each, state)]
    pairs = [(first, second) for first in possible for second in possible]
    problems = []
    refused = 0
    with Race(database) as race:
        now, old = race.open(), race.open()
        for first, second in random.Random(state + isolation).sample(pairs, min(PAIRS, len(pairs))):
            stage = Stage.make(race, state)
            old.begin(isolation)
            assert old.value(f"select count(*) from pgmq.q_{race.queue}") == len(stage.ids)
            first_done = finish(first, start(now, first, race, stage))
            second_done = act(old, second, race, stage)
            refused += second_done is None
            done = [first_done] if second_done is None else [first_done, second_done]
            found = problems_of(race, stage, done)
            wanted = must_find(second, first_done, stage, state)
            if second_done is not None and wanted is not None and set(second_done.ids) != wanted:
                found.append(f"got {second_done.ids}, should have got {sorted(wanted)}")
            problems += [f"{state}: {first.name}, then {second.name}: {each}" for each in found]
    assert not problems, "\n".join(problems)
    assert refused > 0
    # Ready messages are one run here, and every action writes it anew.
    assert refused < PAIRS or state == "ready"
