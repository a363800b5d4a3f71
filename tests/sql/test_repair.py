"""Redriving with a patch: what it does to a body, all or none of the dead letters, and what stays as history."""

import json
from typing import Any

import psycopg
import pytest
from tests.sql.race.sessions import Race, Session
from tests.sql.test_redrive import maintain, pass_segment

REPAIR = "select msg_id from spanmq.redrive('jobs', delay => 0, patch => %s::jsonb{})"
PREVIEW = "select msg_id, before, after from spanmq.redrive('jobs', patch => %s::jsonb, dry_run => true{})"
REJECT = "select spanmq.reject('jobs', lease_id, array_agg(msg_id)) from spanmq.receive('jobs', {}) group by lease_id"
BODIES = "select message from pgmq.q_jobs order by msg_id"
WAITING = "select msg_id from spanmq.dead_letters('jobs', qty => 10000)"


def dead(race: Race, bodies: list[Any]) -> list[int]:
    ids = race.main.column("select pgmq.send_batch('jobs', %s::jsonb[])", list(map(json.dumps, bodies)))
    race.main.rows(REJECT.format(len(bodies)))
    return ids


def repair(session: Session, patch: list[dict[str, Any]], more: str = "", *values: Any) -> list[int]:
    return session.column(REPAIR.format(more), json.dumps(patch), *values)


def refused(session: Session, patch: list[dict[str, Any]], more: str = "") -> psycopg.errors.Diagnostic:
    with pytest.raises(psycopg.Error) as raised:
        repair(session, patch, more)
    return raised.value.diag


# Examples of RFC 6902, appendix A, and the rest of its section 4 and of RFC 6901.
FITTING: list[tuple[Any, list[dict[str, Any]], Any]] = [
    ({"a": 1}, [{"op": "add", "path": "/b", "value": 2}], {"a": 1, "b": 2}),
    ({"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}),
    ({"a": []}, [{"op": "add", "path": "/a/0", "value": 2}], {"a": [2]}),
    ({"a": [1]}, [{"op": "add", "path": "/a/1", "value": [2]}], {"a": [1, [2]]}),
    ({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
    ({"a": 1}, [{"op": "add", "path": "/a", "value": None}], {"a": None}),
    ({"a": 1}, [{"op": "remove", "path": "/a"}], {}),
    ([1, 2, 3], [{"op": "remove", "path": "/1"}], [1, 3]),
    ({"a": None}, [{"op": "replace", "path": "/a", "value": {"b": 1}}], {"a": {"b": 1}}),
    ({"a": 1}, [{"op": "replace", "path": "", "value": 7}], 7),
    (1, [{"op": "add", "path": "", "value": [1]}], [1]),
    ({"a": {"b": 1}, "c": {}}, [{"op": "move", "from": "/a/b", "path": "/c/d"}], {"a": {}, "c": {"d": 1}}),
    ([1, 2, 3], [{"op": "move", "from": "/0", "path": "/2"}], [2, 3, 1]),
    ({"a": 1}, [{"op": "move", "from": "/a", "path": "/a"}], {"a": 1}),
    ({"a": {"b": 1}}, [{"op": "move", "from": "/a/b", "path": ""}], 1),
    (1, [{"op": "move", "from": "", "path": ""}], 1),
    ({"a": [1, {"b": 2}]}, [{"op": "test", "path": "/a", "value": [1.0, {"b": 2}]}], {"a": [1, {"b": 2}]}),
    ({"a/b": 1, "m~n": 2}, [{"op": "move", "from": "/a~1b", "path": "/m~0n"}], {"m~n": 1}),
    ({"": {"": 1}}, [{"op": "replace", "path": "//", "value": 2}], {"": {"": 2}}),
    ({"~1": 1}, [{"op": "remove", "path": "/~01"}], {}),
    ({"1": {"-": 1}}, [{"op": "replace", "path": "/1/-", "value": 2, "more": 0}], {"1": {"-": 2}}),
    (
        {"n": 12345678901234567890123},
        [{"op": "add", "path": "/o", "value": 1}],
        {"n": 12345678901234567890123, "o": 1},
    ),
    (
        {"a": 1},
        [{"op": "move", "from": "/a", "path": "/b"}, {"op": "replace", "path": "/b", "value": 2}],
        {"b": 2},
    ),
]
UNFITTING: list[tuple[Any, dict[str, Any], str]] = [
    ({"a": 1}, {"op": "remove", "path": "/b"}, "nothing is there"),
    ({"a": 1}, {"op": "replace", "path": "/b", "value": 1}, "nothing is there"),
    ({"a": 1}, {"op": "test", "path": "/a", "value": "1"}, "another value is there"),
    ({"a": 1}, {"op": "add", "path": "/b/c", "value": 1}, "nothing is there that could hold it"),
    ({"a": 1}, {"op": "add", "path": "/a/c", "value": 1}, "nothing is there that could hold it"),
    ([1], {"op": "add", "path": "/2", "value": 1}, "the array has no such place"),
    ([1], {"op": "add", "path": "/-1", "value": 1}, "the array has no such place"),
    ([1], {"op": "add", "path": "/01", "value": 1}, "the array has no such place"),
    ([1], {"op": "add", "path": "/a", "value": 1}, "the array has no such place"),
    ([1], {"op": "remove", "path": "/-1"}, "nothing is there"),
    ([1], {"op": "replace", "path": "/-", "value": 1}, "nothing is there"),
    ([1], {"op": "replace", "path": "/99999999999", "value": 1}, "nothing is there"),
    ("a", {"op": "remove", "path": "/0"}, "nothing is there"),
    ({"a": 1}, {"op": "move", "from": "/b", "path": "/c"}, 'nothing is at its "from"'),
    ({"a": {"b": 1}}, {"op": "move", "from": "/a", "path": "/a/b"}, "moved into itself"),
    ([[1], [2]], {"op": "move", "from": "/0", "path": "/0/0"}, "moved into itself"),
]


def test_patch_changes_the_body(race: Race) -> None:
    for body, patch, expected in FITTING:
        ids = dead(race, [body])
        assert race.main.rows(PREVIEW.format(""), json.dumps(patch)) == [(ids[0], body, expected)]
        assert repair(race.main, patch) == ids
        assert race.main.column(BODIES) == [expected]
        # What it was is history.
        history = "select message, redriven_as from spanmq.dead_letters('jobs', redriven => true)"
        assert race.main.rows(history) == [(body, ids[0])]
        race.main.rows("select pgmq.purge_queue('jobs'), spanmq.purge_dead_letters('jobs', redriven => true)")


def test_patch_that_does_not_fit_changes_nothing(race: Race) -> None:
    for body, operation, problem in UNFITTING:
        ids = dead(race, [body])
        for more in ("", ", dry_run => true"):
            told = refused(race.main, [operation], more)
            assert told.sqlstate == "MQ002"
            assert (told.message_primary or "").startswith(f"the patch does not fit message {ids[0]}: ")
            assert problem in (told.message_primary or ""), operation
        assert race.main.column(WAITING) == ids
        race.main.rows("select spanmq.purge_dead_letters('jobs')")


RENAME = [{"op": "move", "from": "/custmer", "path": "/customer"}]


def test_one_that_does_not_fit_keeps_all_where_they_are(race: Race) -> None:
    ids = dead(race, [{"custmer": n} for n in range(600)] + [{"customer": 1}])
    assert f"message {ids[-1]}:" in (refused(race.main, RENAME).message_primary or "")
    assert race.main.column(WAITING) == ids
    assert race.left() == []
    # Those that a path chooses are all that it fits.
    assert repair(race.main, RENAME, ", match => 'exists($.custmer)'") == ids[:-1]
    assert race.main.column(BODIES) == [{"customer": n} for n in range(600)]
    assert race.main.column(WAITING) == ids[-1:]


def test_more_than_the_quantity_are_not_half_done(race: Race) -> None:
    ids = dead(race, [{"custmer": n} for n in range(12)])
    for more in (", qty => 11", ", qty => 11, dry_run => true"):
        told = refused(race.main, RENAME, more).message_primary
        assert told == "more than 11 dead letters fit: none is redriven"
    assert race.main.column(WAITING) == ids
    assert repair(race.main, RENAME, ", qty => 12") == ids
    assert repair(race.main, RENAME, ", qty => 2147483647") == []


def test_every_filter_chooses(race: Race) -> None:
    ids = dead(race, [{"custmer": n, "kind": "odd" if n % 2 else "even"} for n in range(8)])
    numbers = race.main.column("select dead_letter_id from spanmq.dead_letters('jobs')")
    assert repair(race.main, RENAME, """, payload => '{"kind": "odd"}', match => '$.custmer > 4'""") == [
        ids[5],
        ids[7],
    ]
    named = [numbers[1], numbers[5], numbers[2], 10**9]
    assert repair(race.main, RENAME, ", dead_letter_ids => %s", named) == ids[1:3]
    assert repair(race.main, RENAME, ", category => 'BUSINESS'") == []
    assert repair(race.main, RENAME, ", dead_letter_ids => '{}'") == []
    assert repair(race.main, RENAME, ", match => '$ ? (@.custmer < 4)'") == [ids[0], ids[3]]
    assert race.main.column(WAITING) == [ids[4], ids[6]]
    assert race.main.rows("""select * from spanmq.redrive('jobs', match => '$."$x" ? (@ == "$")')""") == []


@pytest.mark.parametrize("fate", ["commit", "rollback"])
@pytest.mark.parametrize("how", ["together", "alone"])
@pytest.mark.parametrize("call", ["redrive('jobs', qty => 2)", "redrive_message('jobs', 1)"])
def test_one_that_another_redrives_is_waited_for(race: Race, fate: str, how: str, call: str) -> None:
    ids = dead(race, [{"custmer": n} for n in range(4)])
    if how == "alone":
        race.main.rows("select * from spanmq.maintain()")
    first, second = race.begun(), race.open()
    first.rows(f"select spanmq.{call}")
    its = ids[:2] if "qty" in call else ids[:1]
    later = second.waiting(REPAIR.format(""), json.dumps(RENAME))
    first.end(fate)
    mine = [id_ for id_ in ids if fate == "rollback" or id_ not in its]
    assert [id_ for (id_,) in later.rows()] == mine
    # Each once, and patched by one that says so.
    assert race.left() == ids
    key = {id_: "customer" if id_ in mine else "custmer" for id_ in ids}
    assert race.main.column(BODIES) == [{key[id_]: n} for n, id_ in enumerate(ids)]
    assert race.main.column(WAITING) == []
    assert race.main.value("select count(*) from spanmq_core.dead_letter where redriven_at is not null") == 4


def test_redrive_skips_what_a_patch_has_in_hand(race: Race) -> None:
    ids = dead(race, [{"custmer": n} for n in range(4)])
    first, second = race.begun(), race.open()
    assert repair(first, RENAME) == ids
    assert second.rows("select spanmq.redrive('jobs')") == []
    first.rollback()
    assert second.column("select msg_id from spanmq.redrive('jobs')") == ids


def test_two_patches_change_each_body_once(race: Race) -> None:
    ids = dead(race, [{"n": [0]} for _ in range(4)])
    more = [{"op": "add", "path": "/n/-", "value": 1}]
    first, second = race.begun(), race.open()
    assert repair(first, more) == ids
    later = second.waiting(REPAIR.format(""), json.dumps(more))
    first.commit()
    assert later.rows() == []
    assert race.main.column(BODIES) == [{"n": [0, 1]}] * 4


def test_repair_in_an_old_snapshot_is_right_or_fails_cleanly(race: Race) -> None:
    ids = dead(race, [{"custmer": n} for n in range(4)])
    old = race.open()
    old.look()
    race.main.rows("select spanmq.redrive('jobs', qty => 1)")
    assert refused(old, RENAME).sqlstate == "40001"
    old.rollback()
    assert repair(old, RENAME) == ids[1:]


def test_message_that_dies_again_has_both_bodies_as_history(race: Race) -> None:
    dead(race, [{"custmer": 1}])
    repair(race.main, RENAME)
    race.main.rows(REJECT.format(1))
    history = race.main.rows("select message, redriven_at is null from spanmq.dead_letters_of('jobs', 1)")
    assert history == [({"custmer": 1}, False), ({"customer": 1}, True)]


def test_repaired_body_is_written_where_the_segment_has_gone(race: Race) -> None:
    ids = dead(race, [{"custmer": n} for n in range(4)])
    pass_segment(race)
    maintain(race, "dropped segment")
    assert repair(race.main, RENAME) == ids
    assert race.main.column(BODIES) == [*({"customer": n} for n in range(4)), "late"]


def test_new_bodies_go_to_the_dead_letters_that_they_are_for(race: Race) -> None:
    ids = dead(race, [10, 11, 12, 13])
    numbers = race.main.column("select dead_letter_id from spanmq.dead_letters('jobs')")
    call = "select msg_id from spanmq.redrive('jobs', dead_letter_ids => %s, new_messages => %s::jsonb[])"
    # Neither its order nor an id of no dead letter moves a body to another one; null leaves it as it was.
    letters = [numbers[3], 10**9, numbers[0], numbers[1]]
    assert race.main.column(call, letters, ['"d"', '"x"', '"a"', None]) == [ids[0], ids[1], ids[3]]
    assert race.main.column(BODIES) == ["a", 11, "d"]
    assert race.main.column(call, letters, ['"d"', '"x"', '"a"', None]) == []
    assert race.main.column(WAITING) == [ids[2]]


def test_encrypted_body_is_not_patched(race: Race) -> None:
    ids = dead(race, [{"spanmq.sealed": {"text": "x"}}, {"custmer": 1}])
    told = refused(race.main, [{"op": "add", "path": "/a", "value": 1}])
    assert (told.sqlstate, told.message_primary) == (
        "MQ004",
        f"message {ids[0]} cannot be patched: its body is encrypted",
    )
    assert race.main.column(WAITING) == ids


def test_message_that_a_subscription_has_too_is_not_changed(race: Race) -> None:
    race.main.rows("select spanmq.create_subscription('lake', 'jobs')")
    ids = dead(race, [{"custmer": 1}])
    assert refused(race.main, RENAME).sqlstate == "MQ060"
    call = "select msg_id from spanmq.redrive('jobs', dead_letter_ids => %s, new_messages => '{2}')"
    numbers = race.main.column("select dead_letter_id from spanmq.dead_letters('jobs')")
    with pytest.raises(psycopg.Error) as raised:
        race.main.rows(call, numbers)
    assert raised.value.sqlstate == "MQ060"
    # A patch that only tests changes nothing.
    assert repair(race.main, [{"op": "test", "path": "/custmer", "value": 1}]) == ids


def test_patch_wants_the_right_to_receive(race: Race) -> None:
    dead(race, [{"custmer": 1}])
    race.main.begin()
    race.main.rows(
        "create role clerk; select spanmq.grant_queue('clerk', 'jobs', 'look'); set local role clerk"
    )
    for more in ("", ", dry_run => true"):
        race.main.rows("savepoint before")
        assert refused(race.main, RENAME, more).sqlstate == "42501"
        race.main.rows("rollback to before")
    race.main.rows("reset role; select spanmq.grant_queue('clerk', 'jobs', 'receive'); set local role clerk")
    assert repair(race.main, RENAME) == [1]
    race.main.rollback()


def test_least_rate_that_there_is_puts_off_all_but_the_first(race: Race) -> None:
    ids = dead(race, [1, 2])
    assert race.main.column("select msg_id from spanmq.redrive('jobs', rate => 5e-324, delay => 0)") == ids
    assert race.main.column("select msg_id from spanmq.receive('jobs', 9)") == ids[:1]
