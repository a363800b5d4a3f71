"""Bodies that a receiver can't read, and that must not stop those beside them."""

import json
from typing import Any

import psycopg
import pytest

from spanmq.client import Client
from spanmq.codec.body import RawJson
from spanmq.codec.encryption import Encryption, Unopened
from spanmq.errors import InvalidArgumentError, InvalidBodyError

Connection = psycopg.Connection[Any]
DEEP = "[" * 3_000 + "]" * 3_000


@pytest.fixture
def client(connection: Connection) -> Client:
    made = Client(connection=connection)
    made.queues.create("odd")
    return made


def test_number_of_more_digits_than_python_prints_is_read(client: Client, connection: Connection) -> None:
    connection.execute("select pgmq.send('odd', '[1e5000, -1e5000, 1.5]', headers => '{\"n\": 1e5000}')")
    [message] = client.receive("odd")
    assert message.body == [10**5000, -(10**5000), 1.5]
    assert message.headers == {"n": 10**5000}


def test_body_too_deep_for_python_goes_back_and_the_others_come(client: Client) -> None:
    client.send_batch("odd", [1, RawJson(DEEP), 2])
    assert [message.body for message in client.receive("odd", 3)] == [1, 2]
    [deep] = [message for message in client.peek("odd") if message.message_id == 2]
    assert isinstance(deep.body, Unopened)
    assert deep.body.text == DEEP
    [failure] = client.inspect.failures("odd", 2)
    assert failure.error_class == "InvalidBodyError"


def test_body_too_deep_that_comes_alone_is_a_typed_error(client: Client) -> None:
    client.send("odd", RawJson(DEEP))
    with pytest.raises(InvalidBodyError, match="the body cannot be decoded") as raised:
        client.receive("odd")
    assert isinstance(raised.value.__cause__, RecursionError)
    [failure] = client.inspect.failures("odd", 1)
    assert (failure.outcome, failure.error_class) == ("retrying", "InvalidBodyError")


def test_body_that_begins_as_a_sealed_one_and_is_too_deep_goes_back(connection: Connection) -> None:
    client = Client(connection=connection, encryption=Encryption({"mine": b"k" * 32}))
    client.queues.create("odd")
    client.send("odd", 1)
    connection.execute("select pgmq.send('odd', cast(%s as jsonb))", [f'{{"spanmq.sealed": {DEEP}}}'])
    client.send("odd", 2)
    assert [message.body for message in client.receive("odd", 3)] == [1, 2]
    [failure] = client.inspect.failures("odd", 2)
    assert failure.error_class == "InvalidBodyError"


def test_headers_too_deep_for_python_go_back(client: Client) -> None:
    client.send("odd", 1)
    client.send("odd", 2)
    connection = client.connection
    connection.execute(
        "select pgmq.send('odd', '3', headers => cast(%s as jsonb))", [json.dumps({"a": 1})[:-2] + DEEP + "}"]
    )
    assert [message.body for message in client.receive("odd", 3)] == [1, 2]


def test_popped_body_that_can_t_be_read_is_given_as_it_is(client: Client) -> None:
    client.send_batch("odd", [RawJson(DEEP), 2])
    first, second = client.pop("odd", 2)
    assert isinstance(first.body, Unopened)
    assert (first.body.text, second.body) == (DEEP, 2)


def test_decoder_that_raises_spoils_one_message_only(connection: Connection) -> None:
    client = Client(connection=connection, decoder=lambda raw: {b"1": "one"}[raw])
    client.queues.create("odd")
    client.send_batch("odd", [1, 2])
    assert [message.body for message in client.receive("odd", 2)] == ["one"]


def test_depth_that_the_server_refuses_is_a_bad_body(client: Client) -> None:
    with pytest.raises(InvalidBodyError, match="stack depth"), client.transaction():
        client.send("odd", RawJson("[" * 50_000 + "]" * 50_000))
    assert client.queues.metrics("odd").total_messages == 0


def test_raw_json_of_no_text_is_a_bad_body(client: Client) -> None:
    with pytest.raises(InvalidBodyError, match="RawJson takes str or bytes, got int"):
        client.send("odd", RawJson(5))  # type: ignore[arg-type]


def test_bytes_are_no_ids(client: Client) -> None:
    client.send_batch("odd", list(range(60)))
    with pytest.raises(InvalidArgumentError, match="message_ids must be integers, got bytes"):
        client.delete("odd", b"12")
    assert client.queues.metrics("odd").length == 60
