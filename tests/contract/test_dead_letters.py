"""Dead letters: chosen, put back, repaired, deleted; and the categories of errors."""

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.contract.door import Door, refused

RENAME = [{"op": "move", "from": "/n", "path": "/number"}]


def kill(door: Door, queue: str, quantity: int, **reason: Any) -> list[int]:
    """Let messages become dead letters, whose bodies number them; return their ids."""
    ids = door.send_batch(queue, [{"n": n} for n in range(quantity)])
    door.settle("reject", door.receive(queue, quantity, lease=600), **({"error": "boom"} | reason))
    return ids


def test_filters_choose(door: Door, queue: str) -> None:
    one, two = kill(door, queue, 2, error="Time-out", error_class="Slow", category="TRANSIENT")

    def chosen(**filters: Any) -> list[int]:
        return [letter["message_id"] for letter in door.dead_letters(queue, **filters)]

    assert chosen(category="TRANSIENT", error="time.out", error_class="Slow") == [one, two]
    for nothing in (
        {"category": "BUSINESS"},
        {"error": "none"},
        {"error_class": "Fast"},
        {"where": "$.n > 9"},
    ):
        assert chosen(**nothing) == []
    past, future = datetime(2020, 1, 1, tzinfo=UTC), datetime(2999, 1, 1, tzinfo=UTC)
    assert chosen(since=past, until=future) == [one, two]
    assert chosen(since=future) == chosen(until=past) == []
    assert chosen(where="$.n > 0") == [two]
    assert chosen(limit=1) == [one]
    first, _ = door.dead_letters(queue)
    assert chosen(after=first["dead_letter_id"]) == [two]
    assert door.count_dead_letters(queue) == {"TRANSIENT": 2}


def test_chosen_ones_are_put_back_once(door: Door, queue: str) -> None:
    ids = kill(door, queue, 4)
    numbers = [each["dead_letter_id"] for each in door.dead_letters(queue)]
    planned = door.redrive(queue, dry_run=True)
    assert [each["message_id"] for each in planned] == ids
    assert door.receive(queue) == []
    done = door.redrive(queue, dead_letter_ids=[numbers[2], numbers[0]], delay=0.0)
    assert [each["message_id"] for each in done] == [ids[0], ids[2]]
    assert [each["message_id"] for each in door.redrive(queue, where="$.n == 1", rate=5.0, delay=0.0)] == [
        ids[1]
    ]
    assert [(each.message_id, each.attempt) for each in door.receive(queue, 9)] == [
        (each, 1) for each in ids[:3]
    ]
    # Without a delay, after that of the policy.
    assert [each["message_id"] for each in door.redrive(queue)] == [ids[3]]
    assert door.receive(queue) == []
    assert door.redrive(queue) == door.dead_letters(queue) == []
    assert [each["message_id"] for each in door.dead_letters(queue, redriven=True)] == ids


def test_all_or_none_are_put_back_patched(door: Door, queue: str) -> None:
    ids = kill(door, queue, 12)
    planned = door.redrive(queue, patch=RENAME, dry_run=True)
    assert [each["message_id"] for each in planned] == ids
    assert [(each["before"], each["after"]) for each in planned] == [
        *(({"n": n}, {"number": n}) for n in range(10)),
        (None, None),
        (None, None),
    ]
    for bad in (
        {"patch": RENAME, "limit": 11},
        {"patch": [{"op": "remove", "path": "/m"}]},
        {"patch": [{"op": "rename", "path": "/m"}]},
    ):
        with refused("invalid_argument"):
            door.redrive(queue, **bad)
    done = door.redrive(queue, patch=RENAME, where="$.n < 6", delay=0.0)
    assert [(each["message_id"], each["before"], each["after"]) for each in done] == [
        (message_id, None, None) for message_id in ids[:6]
    ]
    assert [each.body for each in door.receive(queue, 12)] == [{"number": n} for n in range(6)]
    history = door.dead_letters(queue, redriven=True)
    assert [letter["body"] for letter in history] == [{"n": n} for n in range(6)]


def test_one_is_put_back_repaired(door: Door, queue: str) -> None:
    one, two = kill(door, queue, 2)
    assert door.edit(queue, one, body={"repaired": True}, delay=0.0) == one
    assert door.edit(queue, two, delay=0.0) == two
    assert [each.body for each in door.receive(queue, 3)] == [{"repaired": True}, {"n": 1}]
    with refused("dead_letter_not_found"):
        door.edit(queue, one)


def test_discarded_ones_are_gone(door: Door, queue: str) -> None:
    kill(door, queue, 3)
    assert door.discard(queue, dry_run=True) == 3
    assert door.discard(queue, where="$.n > 1") == 1
    assert door.discard(queue, limit=1) == 1
    assert [each["body"] for each in door.dead_letters(queue)] == [{"n": 1}]
    door.redrive(queue)
    assert door.discard(queue) == 0
    assert door.discard(queue, redriven=True) == 1


@pytest.mark.parametrize(
    ("filters", "code"),
    [({"where": "$."}, "invalid_argument"), ({"error": "("}, "invalid_pattern")],
    ids=["path", "pattern"],
)
def test_filter_that_is_none_is_refused(door: Door, queue: str, filters: dict[str, Any], code: str) -> None:
    for call in (door.dead_letters, door.redrive, door.discard):
        with refused(code):
            call(queue, **filters)


def test_rules_find_the_category(door: Door, queue: str) -> None:
    assert door.classify(queue, "Connection refused") == "DEPENDENCY"
    door.set_rule(queue, "sold", "BUSINESS", "sold out")
    assert door.classify(queue, "Sold out") == "BUSINESS"
    rule = door.rules(queue)[0]
    assert (rule["name"], rule["category"], rule["queue"]) == ("sold", "BUSINESS", queue)
    assert door.drop_rule(queue, "sold")
    assert not door.drop_rule(queue, "sold")
    assert door.classify(queue, "Sold out") == "UNKNOWN"
    with refused("invalid_pattern"):
        door.set_rule(queue, "bad", "BUSINESS", "[")
