"""What a receiver says of the messages that it holds."""

from tests.contract.door import Delivery, Door, refused

REASON = {"error_class": "ValueError", "traceback": "line 1", "worker": "w1"}


def taken(door: Door, queue: str, quantity: int = 1) -> list[Delivery]:
    """Receive what was just sent."""
    door.send_batch(queue, range(quantity))
    messages = door.receive(queue, quantity, lease=600)
    assert len(messages) == quantity
    return messages


def test_nacked_message_comes_again_with_its_story(door: Door, queue: str) -> None:
    [first] = taken(door, queue)
    assert door.state(queue, first.message_id) == "processing"
    assert door.settle("nack", [first], error="no stock", retry_in=0.0, **REASON) == ["retrying"]
    [second] = door.receive(queue, lease=600)
    assert (second.message_id, second.attempt, second.last_error) == (first.message_id, 2, "no stock")
    assert door.settle("nack", [second], error="again", category="TRANSIENT", retry_in=600.0) == ["retrying"]
    assert door.state(queue, first.message_id) == "failed"
    assert door.receive(queue) == []
    one, two = door.failures(queue, first.message_id)
    assert (one["attempt"], one["error"], one["outcome"]) == (1, "no stock", "retrying")
    assert {name: one[name] for name in REASON} == REASON
    assert (two["attempt"], two["error"], two["category"]) == (2, "again", "TRANSIENT")


def test_released_message_was_not_tried(door: Door, queue: str) -> None:
    messages = taken(door, queue, 2)
    assert door.settle("release", messages) == ["released", "released"]
    assert [(each.message_id, each.attempt) for each in door.receive(queue, 2)] == [
        (each.message_id, 1) for each in messages
    ]


def test_rejected_message_is_a_dead_letter(door: Door, queue: str) -> None:
    rejected, given_up = taken(door, queue, 2)
    assert door.settle("reject", [rejected], error="bad", **REASON) == ["dead"]
    # A category that is not tried again.
    assert door.settle("nack", [given_up], category="PERMANENT") == ["dead"]
    assert [door.state(queue, each.message_id) for each in (rejected, given_up)] == ["dead", "dead"]
    letters = door.dead_letters(queue)
    assert [each["message_id"] for each in letters] == [rejected.message_id, given_up.message_id]
    assert {name: letters[0][name] for name in REASON} == REASON
    assert (letters[0]["body"], letters[0]["error"], letters[0]["attempts"]) == (0, "bad", 1)
    assert letters[1]["category"] == "PERMANENT"


def test_lease_that_is_over_settles_nothing(door: Door, queue: str) -> None:
    door.send(queue, 1)
    slow = door.receive(queue, lease=0)
    [quick] = door.receive(queue, lease=600)
    assert quick.attempt == 2
    for how in ("ack", "nack", "reject", "release"):
        assert door.settle(how, slow) == ["stale"]
    assert door.settle("extend", slow, seconds=60.0) == ["stale"]
    assert door.settle("ack", [quick]) == ["acked"]


def test_messages_of_several_leases_are_settled_together(door: Door, queue: str) -> None:
    door.send_batch(queue, range(3))
    messages = [*door.receive(queue, 1, lease=600), *door.receive(queue, 2, lease=600)]
    assert door.settle("ack", messages[:1]) == ["acked"]
    assert door.settle("nack", messages) == ["stale", "retrying", "retrying"]


def test_one_message_is_held_longer_by_itself_and_shorter_only_on_demand(door: Door, queue: str) -> None:
    first, second = taken(door, queue, 2)
    assert door.settle("extend", [second], seconds=7200.0) == ["extended"]
    one, two = door.peek(queue)
    assert one["leased_until"] < two["leased_until"]
    assert door.settle("extend", [second], seconds=1.0) == ["extended"]
    assert door.peek(queue) == [one, two]
    assert door.settle("extend", [second], seconds=1.0, shorten=True) == ["extended"]
    one, two = door.peek(queue)
    assert one["leased_until"] > two["leased_until"]
    assert door.settle("ack", [first, second]) == ["acked", "acked"]
    assert door.settle("extend", [second], seconds=7200.0) == ["stale"]


def test_unknown_category_settles_nothing(door: Door, queue: str) -> None:
    [message] = taken(door, queue)
    with refused("invalid_argument"):
        door.settle("nack", [message], category="BAD")
    assert door.state(queue, message.message_id) == "processing"
