"""A wait, a signal and the end of the time meet at one name: one message is sent, no signal is lost or comes twice."""

from typing import Any

import psycopg
import pytest
from tests.sql.race.sessions import Race

WAIT = (
    "select case when spanmq.wait_for_signal('jobs', 'x', '\"m\"', 600) is null then 'waits' else 'sent' end"
)
SIGNALS = {f"signal {n}": f"select spanmq.signal('jobs', 'x', '{n}')" for n in (1, 2)}
TIMEOUT = "select coalesce(max(action), 'nothing') from spanmq.maintain() where action = 'ended wait'"
ACTS = {"wait": WAIT, **SIGNALS, "timeout": TIMEOUT}
SENT = "select (headers->'x-spanmq-signal') - 'name'::text from pgmq.pop('jobs', 100) order by msg_id"
LEFT = "select case when is_wait then 'waits' else body::text end from spanmq.list_signals('jobs')"
OVERDUE = "update spanmq_core.signal set until = clock_timestamp() where is_wait"
TIMED_OUT = {"timed_out": True}

# What comes before; the first act and the second, which meets it; the outcome of the second, the signals that
# messages were sent with, and what is left: if the first commits, and if it rolls back.
Expected = tuple[str, list[dict[str, Any]], list[str]]
MEETINGS: list[tuple[str, str, str, Expected, Expected]] = [
    ("", "wait", "signal 1", ("released", [{"body": 1}], []), ("kept", [], ["1"])),
    ("", "signal 1", "wait", ("sent", [{"body": 1}], []), ("waits", [], ["waits"])),
    ("", "signal 1", "signal 2", ("replaced", [], ["2"]), ("kept", [], ["2"])),
    ("", "wait", "wait", ("MQ067", [], ["waits"]), ("waits", [], ["waits"])),
    ("wait", "signal 1", "signal 2", ("kept", [{"body": 1}], ["2"]), ("released", [{"body": 2}], [])),
    ("wait", "signal 1", "wait", ("waits", [{"body": 1}], ["waits"]), ("MQ067", [], ["waits"])),
    ("signal 1", "wait", "wait", ("waits", [{"body": 1}], ["waits"]), ("sent", [{"body": 1}], [])),
    ("signal 1", "wait", "signal 2", ("kept", [{"body": 1}], ["2"]), ("replaced", [], ["2"])),
    ("signal 1", "signal 2", "wait", ("sent", [{"body": 2}], []), ("sent", [{"body": 1}], [])),
    ("overdue", "timeout", "signal 1", ("kept", [TIMED_OUT], ["1"]), ("released", [{"body": 1}], [])),
    ("overdue", "timeout", "wait", ("waits", [TIMED_OUT], ["waits"]), ("MQ067", [], ["waits"])),
    ("overdue", "timeout", "timeout", ("nothing", [TIMED_OUT], []), ("nothing", [], ["waits"])),
    ("overdue", "signal 1", "timeout", ("nothing", [{"body": 1}], []), ("nothing", [], ["waits"])),
]


@pytest.mark.parametrize("meeting", MEETINGS, ids=lambda meeting: ", ".join(filter(None, meeting[:3])))
def test_acts_on_one_name_follow_each_other(
    race: Race, meeting: tuple[str, str, str, Expected, Expected]
) -> None:
    before, first, second, committed, rolled_back = meeting
    one, two = race.open(), race.open()
    for fate, expected in (("commit", committed), ("rollback", rolled_back)):
        race.main.rows("delete from spanmq_core.signal")
        if before:
            race.main.rows(ACTS.get(before, WAIT))
        if before == "overdue":
            race.main.rows(OVERDUE)
        one.begin()
        one.rows(ACTS[first])
        met = two.later(ACTS[second])
        # Maintenance waits for nobody, and leaves the name to the other.
        assert met.waits() is (second != "timeout")
        one.end(fate)
        try:
            [(outcome,)] = met.rows()
        except psycopg.DatabaseError as error:
            outcome = error.sqlstate
        assert (outcome, race.main.column(SENT), race.main.column(LEFT)) == expected, fate


@pytest.mark.parametrize(("first", "second"), [("wait", "signal 1"), ("signal 1", "wait")])
def test_old_snapshot_misses_no_signal(race: Race, first: str, second: str) -> None:
    old = race.looking()
    race.main.rows(ACTS[first])
    with pytest.raises(psycopg.errors.SerializationFailure):
        old.rows(ACTS[second])
    old.rollback()
    race.main.rows(ACTS[second])
    assert (race.main.column(SENT), race.main.column(LEFT)) == ([{"body": 1}], [])


@pytest.mark.parametrize(
    ("before", "act", "outcomes"),
    [
        ("wait", "signal 1", ["kept", "released"]),
        ("signal 1", "wait", ["sent", "waits"]),
    ],
)
def test_acts_that_have_found_the_same_row_use_it_once(
    race: Race, before: str, act: str, outcomes: list[str]
) -> None:
    race.main.rows(ACTS[before])
    holder = race.begun()
    holder.rows("select from spanmq_core.signal for share")
    met = [race.open().waiting(ACTS[act]) for _ in range(2)]
    holder.commit()
    assert sorted(each.rows()[0][0] for each in met) == outcomes
    assert len(race.main.column(SENT)) == 1
