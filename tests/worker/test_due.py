"""What comes back by itself is found when it does, though its worker looks by itself only now and then."""

from typing import Any

import psycopg
import pytest
from tests.client.concurrency import until
from tests.worker.running import working

from spanmq import Client, Message, RetryIn
from spanmq.worker.event import MessageHandled

# Who does not look ahead looks twice, and then not within the test.
POLL_SECONDS = 3_600.0
DUE_SECONDS = 2.0
# The worker has announced that it waits, and nothing has rung since. A send before that may not ring: a look soon after
# finds its message, unless the sender takes longer to commit.
WAITS = (
    "select count(*) = 1 from spanmq_core.listener l"
    " cross join pg_sequence_last_value(('spanmq_core.bell_' || l.bell)::regclass) state"
    " where state > 0 and state & 1048575 = ((state >> 20) - 60000) & 1048575"
)


@pytest.fixture(autouse=True)
def rare_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spanmq.client.polling.HEARD_GROWTH", 1e6)


def test_delayed_message_is_handled_when_it_falls_due(client: Client, database: str) -> None:
    client.send("orders", 1, delay=DUE_SECONDS)
    with working(database, lambda message: None, poll_interval=POLL_SECONDS) as record:
        record.wait(MessageHandled)


@pytest.mark.parametrize("is_delayed", [True, False])
def test_what_falls_due_soon_is_announced_to_the_idle(
    client: Client, database: str, observer: psycopg.Connection[Any], is_delayed: bool
) -> None:
    attempts: list[int] = []

    def handle(message: Message) -> None:
        attempts.append(message.attempt)
        if message.body == "fails" and message.attempt == 1:
            raise RetryIn(DUE_SECONDS, "not yet")

    with working(database, handle, poll_interval=POLL_SECONDS) as record:
        until(observer, WAITS)
        client.send("orders", "first")
        record.wait(MessageHandled)
        until(observer, WAITS)
        client.send("orders", "second" if is_delayed else "fails", delay=DUE_SECONDS if is_delayed else 0)
        record.wait(MessageHandled, 2 if is_delayed else 3)
    assert attempts == [1, 1] if is_delayed else [1, 1, 2]
