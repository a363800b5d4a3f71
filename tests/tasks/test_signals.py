"""Tasks that wait for a signal, and the task that follows."""

from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from tests.tasks.shop import done, working

from spanmq import Client
from spanmq.errors import InvalidArgumentError
from spanmq.tasks import GIVEN, Signal, Tasks, Wait
from spanmq.testing import drain

flows = Tasks("orders")


@flows.task(max_attempts=1)
async def ask(order: int, connection: psycopg.AsyncConnection[Any] = GIVEN) -> Wait:
    await connection.execute("insert into shipped values (%s)", [order])
    return Wait(f"approved:{order}", timeout=600, then=ship.call(order))


@flows.task
def ask_plain(name: str) -> list[Wait]:
    return [Wait(name, timeout=600, then=ship_plain)]


@flows.task(max_attempts=1)
async def ship(order: int, signal: Signal = GIVEN) -> None:
    done.append((order, signal.name, signal.body, signal.timed_out))


@flows.task(queue="mail")
def ship_plain(*, signal: Signal = GIVEN) -> None:
    done.append((signal.body, signal.timed_out))


@pytest.fixture
def client(client: Client, database: str) -> Iterator[Client]:
    flows.connect(database)
    yield client
    flows.close()


async def test_task_that_waits_is_followed_once_by_the_signal(client: Client, database: str) -> None:
    async with working(flows) as outcomes:
        asked = ask.send(17)
        ask_plain.send("x")
        assert await outcomes.all(2) == ["acked"] * 2
        waits = client.signals.list("orders") + client.signals.list("mail")
        assert [(each.queue, each.name, each.is_wait) for each in waits] == [
            ("orders", "approved:17", True),
            ("mail", "x", True),
        ]
        assert waits[0].body == {"task": "ship", "args": {"order": 17}}
        reasons = client.inspect.explain(asked.queue, asked.message_id)
        assert [(each.code, each.call) for each in reasons] == [
            ("completed", None),
            ("waits", "select spanmq.signal('orders', 'approved:17')"),
        ]
        assert reasons[1].until == waits[0].until
        with psycopg.connect(database) as connection:
            assert flows.signal("approved:17", {"by": "ann"}, connection=connection) == "released"
            assert done == [], "the signal comes with the commit"
        assert len(client.inspect.explain(asked.queue, asked.message_id)) == 1
        assert await flows.signal_async("x", b"raw", queue="mail") == "released"
        assert await outcomes.all(2) == ["acked"] * 2
        # A signal that comes first, and a second one before the wait.
        assert flows.signal("approved:18", 1, keep_for=60) == "kept"
        assert flows.signal("approved:18") == "replaced"
        ask.send(18)
        assert await outcomes.all(2) == ["acked"] * 2
    assert sorted(done, key=str) == [
        (17, "approved:17", {"by": "ann"}, False),
        (18, "approved:18", None, False),
        (b"raw", False),
    ]
    assert client.signals.list("orders") == []


def test_task_that_waits_in_vain_is_followed_without_a_signal(client: Client) -> None:
    with client.transaction() as transaction:
        transaction.signals.park("mail", "x", {"task": "ship_plain"}, wait_for=0)
    client.admin.maintain()
    assert drain(flows) == 1
    assert done == [(None, True)]


def test_second_wait_for_a_name_fails_and_a_call_without_a_wait_too(client: Client) -> None:
    ask.send(17)
    ask.send(17)
    with pytest.raises(BaseException, match="waits for the signal"):
        drain(flows)
    ship.send(1)
    with pytest.raises(BaseException, match="takes a signal, and the message waited for none"):
        drain(flows)
    for wrong in ({"name": "", "then": ship_plain}, {"name": "é" * 128, "then": ship_plain}):
        with pytest.raises(InvalidArgumentError, match="1 to 255 bytes"):
            Wait(timeout=1, **wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="what ends a wait has a group"):
        Wait("x", timeout=1, then=ship.using(delay=5).call(1))
    with pytest.raises(InvalidArgumentError, match="a wait ends with a call"):
        Wait("x", timeout=1, then=17)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="timeout"):
        Wait("x", timeout=-1, then=ship_plain)


@pytest.mark.parametrize("headers", ["[1]", '"x"', '{"x-spanmq-signal": 7}'])
def test_headers_of_any_json_are_no_signal(client: Client, database: str, headers: str) -> None:
    ship.send(1)
    with psycopg.connect(database) as connection:
        connection.execute(
            "select pgmq.send('orders', p.message, %s::jsonb) from pgmq.pop('orders') p", [headers]
        )
    with pytest.raises(BaseException, match="takes a signal, and the message waited for none"):
        drain(flows)


def test_signal_of_encrypted_queues_is_sealed(
    client: Client, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPANMQ_ENCRYPTION_KEYS", f"a {b64encode(bytes(32)).decode()}")
    secret = Tasks("orders", dsn=database)
    follow = secret.task(name="ship")(ship.function)
    secret.task(name="ask")(lambda: Wait("x", timeout=600, then=follow.call(1))).send()
    drain(secret)
    assert secret.signal("x", "PIN 4711") == "released"
    with psycopg.connect(database) as connection:
        [stored] = connection.execute("select message::text || headers::text from pgmq.q_orders").fetchall()
    assert "4711" not in stored[0]
    drain(secret)
    assert done == [(1, "x", "PIN 4711", False)]
    secret.close()
