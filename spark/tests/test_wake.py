"""An idle stream hears of a message: it does not wait for its next poll."""

import threading
from typing import Any

import psycopg
import pytest
from spark.tests.conftest import Streams
from tests.patience import WAIT_SECONDS, wait_until

from spanmq.client import Client
from spanmq_spark import stream as stream_module


@pytest.mark.parametrize("queue", ["orders", "orders,others"])
def test_message_wakes_an_idle_stream(
    client: Client,
    observer: psycopg.Connection[Any],
    stream: Streams,
    monkeypatch: pytest.MonkeyPatch,
    queue: str,
) -> None:
    client.queues.create("others")
    # A poll comes after the end of the test.
    for name in ("WAIT_SECONDS",):
        monkeypatch.setattr(stream_module, name, 10 * WAIT_SECONDS)
    driver = stream(queue=queue).start()
    assert driver.step() == 0
    sizes: list[int | None] = []
    for n in (1, 2):
        thread = threading.Thread(target=lambda: sizes.append(driver.step()), daemon=True)
        thread.start()
        until_listening(observer)
        client.send_batch("orders", range(n))
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()
    assert sizes == [1, 2]


def until_listening(observer: psycopg.Connection[Any]) -> None:
    """Return when a process has announced that it waits: what is sent from now on wakes it."""
    query = (
        "select count(*) from spanmq_core.listener"
        " where pg_sequence_last_value(('spanmq_core.bell_' || bell)::regclass) > 0"
    )
    wait_until(lambda: observer.execute(query).fetchone() == (1,))
