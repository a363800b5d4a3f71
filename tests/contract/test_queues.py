"""Queues as things, their policies, and recurring messages."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.contract.door import Door, refused


def test_queue_is_created_purged_and_dropped(door: Door, name: Callable[[], str]) -> None:
    queue = name()
    for _ in range(2):
        door.create(queue)
    door.send_batch(queue, range(3))
    assert door.metrics(queue)["length"] == 3
    assert door.purge(queue) == 3
    assert (door.metrics(queue)["length"], door.metrics(queue)["total_messages"]) == (0, 3)
    door.drop(queue)
    with refused("queue_not_found"):
        door.metrics(queue)


def test_paused_queue_delivers_nothing_and_takes_messages(door: Door, queue: str) -> None:
    door.pause(queue)
    door.send(queue, 1)
    assert door.receive(queue) == []
    door.resume(queue)
    assert len(door.receive(queue)) == 1


def test_policy_changes_what_is_named_and_null_gives_the_default_back(door: Door, queue: str) -> None:
    default = door.policy(queue)
    changed = {"max_attempts": 1, "lease": 7200.0, "archive_on_ack": True}
    assert door.set_policy(queue, **changed) == door.policy(queue) == default | changed
    door.send_batch(queue, [1, 2])
    first, second = door.receive(queue, 2)
    assert door.settle("nack", [first], error="no") == ["dead"]
    assert door.settle("ack", [second]) == ["acked"]
    assert [each["message_id"] for each in door.archived(queue)] == [second.message_id]
    assert door.set_policy(queue, **dict.fromkeys(changed)) == default


@pytest.mark.parametrize(
    "settings", [{"max_attempts": -1}, {"lease": -1}, {"unheard_of": 1}, {"max_attempts": "many"}], ids=str
)
def test_policy_out_of_range_is_refused(door: Door, queue: str, settings: dict[str, Any]) -> None:
    before = door.policy(queue)
    with refused("invalid_setting"):
        door.set_policy(queue, **settings)
    assert door.policy(queue) == before


def test_schedule_is_created_changed_paused_and_deleted(door: Door, queue: str) -> None:
    options: dict[str, Any] = {"time_zone": "Europe/Berlin", "headers": {"b": 2}, "catch_up": True}
    door.schedule(queue, queue, "0 3 * * *", {"a": 1}, **options)
    [shown] = door.schedules(queue)
    assert (shown["name"], shown["queue"], shown["cron"]) == (queue, queue, "0 3 * * *")
    assert (shown["body"], {each: shown[each] for each in options}) == ({"a": 1}, options)
    assert shown["is_paused"] is False
    door.pause_schedule(queue)
    assert [each["is_paused"] for each in door.schedules(queue)] == [True]
    door.resume_schedule(queue)
    assert [each["is_paused"] for each in door.schedules(queue)] == [False]
    door.schedule(queue, queue, "0 4 * * *", 2)
    assert [(each["cron"], each["body"], each["catch_up"]) for each in door.schedules(queue)] == [
        ("0 4 * * *", 2, False)
    ]
    assert door.delete_schedule(queue)
    assert not door.delete_schedule(queue)
    assert door.schedules(queue) == []
    with refused("schedule_not_found"):
        door.pause_schedule(queue)
