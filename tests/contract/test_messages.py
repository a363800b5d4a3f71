"""Sending, receiving and looking."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.contract.door import Door, refused


def test_message_is_received_as_it_was_sent(door: Door, queue: str) -> None:
    body = {"number": 1.5, "text": 'ü\n"', "more": [None, True]}
    message_id = door.send(queue, body, headers={"a": 1}, group="g")
    [message] = door.receive(queue, lease=60)
    assert (message.message_id, message.body) == (message_id, body)
    assert message.headers == {"a": 1, "x-pgmq-group": "g"}
    assert (message.group, message.attempt, message.last_error) == ("g", 1, None)
    assert door.receive(queue) == []
    assert door.settle("ack", [message]) == ["acked"]
    assert door.settle("ack", [message]) == ["stale"]
    assert door.metrics(queue)["length"] == 0


def test_batch_keeps_its_order(door: Door, queue: str) -> None:
    ids = door.send_batch(queue, list(range(20)))
    assert ids == sorted(ids)
    assert [(each.message_id, each.body) for each in door.receive(queue, 30)] == list(
        zip(ids, range(20), strict=True)
    )


def test_priority_comes_first_and_delay_hides(door: Door, queue: str) -> None:
    for body, options in enumerate(({}, {"priority": 5}, {"delay": 3600}, {"delay": 0})):
        door.send(queue, body, **options)
    assert [each.body for _ in range(5) for each in door.receive(queue)] == [1, 0, 3]
    counted = door.metrics(queue)
    assert (counted["length"], counted["visible_length"]) == (4, 0)


def test_options_of_a_message_are_kept(door: Door, queue: str) -> None:
    door.send(queue, 1, max_attempts=2, expires_in=3600)
    [message] = door.peek(queue)
    assert message["headers"]["x-spanmq-max-attempts"] == 2
    assert "x-spanmq-expires-at" in message["headers"]


def test_duplicate_has_the_id_of_the_first(door: Door, queue: str) -> None:
    first = door.send(queue, 1, dedup_id="a")
    assert door.send(queue, 2, dedup_id="a", dedup_for=60.0) == first
    until = {"dedup_id": "b", "dedup_until": "settled"}
    second = door.send(queue, 3, **until)
    assert second > first
    assert door.send(queue, 4, **until) == second
    with refused("dedup_id_in_use"):
        door.send(queue, 5, on_duplicate="raise", **until)
    assert door.send(queue, 6, on_duplicate="replace", **until) > second
    assert [each.body for each in door.receive(queue, 9)] == [1, 6]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"priority": 10}, "invalid_argument"),
        ({"expires_in": -1.0}, "invalid_argument"),
        ({"max_attempts": 0}, "invalid_argument"),
        ({"dedup_id": "a", "on_duplicate": "raise"}, "invalid_argument"),
    ],
    ids=str,
)
def test_what_no_message_can_have_is_refused(
    door: Door, queue: str, options: dict[str, Any], code: str
) -> None:
    with refused(code):
        door.send(queue, 1, **options)
    assert door.peek(queue) == []


def test_peek_looks_and_does_not_take(door: Door, queue: str) -> None:
    one, two, three = door.send_batch(queue, ["a", "b", "c"])
    [taken] = door.receive(queue, lease=60)
    for _ in range(2):
        shown = door.peek(queue, 2)
        assert [(each["message_id"], each["body"], each["attempt"]) for each in shown] == [
            (one, "a", 1),
            (two, "b", 0),
        ]
    assert [each["message_id"] for each in door.peek(queue, after=two)] == [three]
    assert [each["message_id"] for each in door.peek(queue, 2, newest_first=True)] == [three, two]
    assert len(door.receive(queue, 9)) == 2
    assert door.settle("ack", [taken]) == ["acked"]


def test_message_is_taken_back_deleted_or_archived(door: Door, queue: str) -> None:
    held, free, deleted, archived = door.send_batch(queue, range(4))
    [message] = door.receive(queue, lease=60)
    unknown = 10**6
    assert door.cancel(queue, [held, free, unknown]) == {
        held: "cancelling",
        free: "cancelled",
        unknown: "unknown",
    }
    assert door.state(queue, free) == "cancelled"
    assert door.delete(queue, [deleted, unknown]) == [deleted]
    assert door.archive(queue, [archived]) == [archived]
    assert [(each["message_id"], each["body"]) for each in door.archived(queue)] == [(archived, 3)]
    assert [each["message_id"] for each in door.peek(queue)] == [message.message_id]


def test_topic_and_subscription_reach_their_queues(door: Door, queue: str, name: Callable[[], str]) -> None:
    copies = name()
    door.subscribe(copies, queue)
    door.bind(f"{queue}.*", queue)
    assert door.send_topic(f"{queue}.new", {"a": 1}) == 1
    assert door.send_topic(f"{queue}.new.one", 2) == 0
    assert door.unbind(f"{queue}.*", queue)
    assert not door.unbind(f"{queue}.*", queue)
    assert door.send_topic(f"{queue}.new", 3) == 0
    for one in (queue, copies):
        assert [each.body for each in door.receive(one, 9)] == [{"a": 1}]


def test_unknown_queue_is_named(door: Door) -> None:
    for call in (
        lambda: door.send("c_none", 1),
        lambda: door.send_batch("c_none", [1, 2]),
        lambda: door.receive("c_none"),
        lambda: door.peek("c_none"),
        lambda: door.metrics("c_none"),
        lambda: door.pause("c_none"),
        lambda: door.policy("c_none"),
        lambda: door.redrive("c_none"),
        lambda: door.cancel("c_none", [1]),
    ):
        with refused("queue_not_found"):
            call()
