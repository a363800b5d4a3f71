"""Bodies: what a sender gives is what a receiver gets, or an error before anything is sent."""

import json
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from enum import Enum
from typing import Any

import orjson
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from spanmq.client import Client
from spanmq.codec import batch
from spanmq.codec.body import BODY_BYTES_MAX, BYTES_KEY, Codec, RawJson, encode_headers
from spanmq.errors import BodyTooLargeError, InvalidArgumentError, InvalidBodyError

Connection = psycopg.Connection[Any]


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Address:
    street: str


@dataclass(frozen=True)
class Order:
    number: int
    address: Address
    placed_at: datetime = datetime(2013, 1, 1, 5, 15, tzinfo=UTC)
    items: list[str] = field(default_factory=list)


class Flight(BaseModel):
    carrier: str
    number: int
    day: date


def sent_and_received(connection: Connection, body: object, **options: Any) -> Any:
    """Send a body through PostgreSQL and give what comes out."""
    client = Client(connection=connection, **options)
    client.queues.create("bodies")
    message_id = client.send("bodies", body)
    [message] = [message for message in client.pop("bodies", 1_000) if message.message_id == message_id]
    return message.body


@pytest.mark.parametrize(
    "body",
    [
        -(10**40),
        'quotes " and \\ slashes',
        "\\u0000",
        "line\nline\ttab",
        "NULL",
        "{}",
        "[1]",
        '{"a":1}',
        {BYTES_KEY: 1},
        {BYTES_KEY: "AA==", "another": "key"},
    ],
    ids=repr,
)
def test_json_value_comes_back_equal(connection: Connection, body: object) -> None:
    assert sent_and_received(connection, body) == body


@pytest.mark.parametrize(
    ("body", "received"),
    [
        (b"", b""),
        (bytes(range(256)), bytes(range(256))),
        (memoryview(bytearray(b"\xff\0")), b"\xff\0"),
        (memoryview(b"abc")[::-1], b"cba"),  # with gaps
    ],
    ids=["none", "every byte", "buffer", "buffer with gaps"],
)
def test_any_buffer_comes_back_as_bytes(connection: Connection, body: object, received: bytes) -> None:
    found = sent_and_received(connection, body)
    assert (type(found), found) == (bytes, received)


def test_envelope_of_bytes_is_readable_with_sql_alone(connection: Connection) -> None:
    client = Client(connection=connection)
    client.queues.create("envelope")
    client.send("envelope", b"\0binary")
    row = connection.execute(
        "select decode(message ->> 'spanmq.bytes', 'base64'), jsonb_typeof(message) from pgmq.q_envelope"
    ).fetchone()
    assert row == (b"\0binary", "object")


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False, allow_infinity=False, min_value=-1e15, max_value=1e15)
    | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), inner, max_size=4
        )
    ),
    max_leaves=8,
)


@given(bodies=st.lists(json_values | st.binary(max_size=40), min_size=1, max_size=12))
def test_any_batch_comes_back_equal(lend: Callable[[], Connection], bodies: list[Any]) -> None:
    connection = lend()
    with connection.transaction(force_rollback=True):
        client = Client(connection=connection)
        client.queues.create("any")
        client.send_batch("any", bodies)
        assert [message.body for message in client.pop("any", 100)] == bodies


# Dataclasses, Pydantic models and what else JSON doesn't know.


def test_dataclass_is_sent_by_its_fields_and_parsed_from_them(connection: Connection) -> None:
    order = Order(7, Address("Main St"), items=["a"])
    received = sent_and_received(connection, order)
    assert received == {
        "number": 7,
        "address": {"street": "Main St"},
        "placed_at": "2013-01-01T05:15:00+00:00",
        "items": ["a"],
    }


def test_default_encoder_knows_times_uuids_enumerations_and_nested_models(connection: Connection) -> None:
    number = uuid.uuid4()
    body = {
        "date": date(2013, 1, 2),
        "time": time(5, 15),
        "uuid": number,
        "enum": [Colour.RED],
        "model": Flight(carrier="UA", number=1, day=date(2013, 1, 1)),
    }
    assert sent_and_received(connection, body) == {
        "date": "2013-01-02",
        "time": "05:15:00",
        "uuid": str(number),
        "enum": ["red"],
        "model": {"carrier": "UA", "number": 1, "day": "2013-01-01"},
    }


# Encoders and decoders of the user's own.


def test_encoder_may_give_bytes_as_orjson_does(connection: Connection) -> None:
    body = {"at": datetime(2013, 1, 1, tzinfo=UTC), "order": Order(1, Address("é"))}
    received = sent_and_received(connection, body, encoder=orjson.dumps, decoder=orjson.loads)
    assert received["at"] == "2013-01-01T00:00:00+00:00"
    assert received["order"]["address"] == {"street": "é"}


def test_encoder_gets_pydantic_models_made_plain(connection: Connection) -> None:
    model = Flight(carrier="UA", number=1, day=date(2013, 1, 1))
    assert sent_and_received(connection, model, encoder=json.dumps) == model.model_dump(mode="json")


def test_number_that_an_encoder_has_no_room_for_is_a_bad_body() -> None:
    def narrow(body: object) -> bytes:  # as msgspec's, beyond 64 bits
        raise OverflowError("too long")

    with pytest.raises(InvalidBodyError, match="too long"):
        Codec(narrow).encode(2**64)


def test_decoder_gets_the_json_as_bytes(connection: Connection) -> None:
    assert sent_and_received(connection, {"a": 1}, decoder=bytes) == b'{"a": 1}'


def test_raw_json_is_sent_as_it_is(connection: Connection) -> None:
    def refuse(body: object) -> str:
        raise AssertionError(body)

    assert sent_and_received(connection, RawJson(b' {"a" : 1e2}'), encoder=refuse) == {"a": 100}


# What can't be sent is refused, and nothing is sent.


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (float("nan"), "can't be encoded"),
        ([float("-inf")], "can't be encoded"),
        (object(), "a object can't be encoded"),
        ({1, 2}, "a set can't be encoded"),
        ({(1, 2): 3}, "keys must be"),
        ("a\0b", "character NUL"),
        ({"a\0": 1}, "character NUL"),
        ({"a": "\\\0"}, "character NUL"),
        ("\ud800", "surrogate"),
        ({BYTES_KEY: "text"}, "envelope of bytes"),
        (RawJson("\0"), "character NUL"),
        (RawJson(b"\xff"), "can't be encoded"),
    ],
)
def test_body_that_is_no_json_is_refused_before_it_is_sent(body: object, text: str) -> None:
    with pytest.raises(InvalidBodyError, match=text):
        Codec().encode(body)


def test_endless_body_is_refused() -> None:
    body: list[object] = []
    body.append(body)
    with pytest.raises(InvalidBodyError, match="can't be encoded"):
        Codec().encode(body)
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidBodyError, match="can't be encoded"):
        Codec().encode(deep)


@pytest.mark.parametrize("text", ["{", "NaN", "", "'a'", '"\\ud800"', '"\\u0000"', "1e200000"])
def test_text_that_the_server_finds_to_be_no_json_is_a_typed_error(database: str, text: str) -> None:
    with Client(database, encoder=lambda _: text) as client:
        client.queues.create("orders")
        with pytest.raises(InvalidBodyError if "1e2" not in text else InvalidArgumentError):
            client.send("orders", None)
        with pytest.raises(InvalidArgumentError):
            client.send_batch("orders", [None])
        assert client.queues.metrics("orders").length == 0


def test_body_of_more_than_255_megabytes_is_refused_before_it_is_sent() -> None:
    codec = Codec()
    assert len(codec.encode("a" * (BODY_BYTES_MAX - 2))) == BODY_BYTES_MAX
    with pytest.raises(BodyTooLargeError, match="267,386,881 bytes"):
        codec.encode("a" * (BODY_BYTES_MAX - 1))
    # The limit is on bytes: this is a quarter of it in characters.
    with pytest.raises(BodyTooLargeError):
        codec.encode("🜁" * (BODY_BYTES_MAX // 4))


# Headers.


def test_headers_and_group_come_back(connection: Connection) -> None:
    client = Client(connection=connection)
    client.queues.create("headers")
    client.send("headers", 1, headers={"trace": ["é", 1, None]}, group="order-17")
    client.send("headers", 2, group="")
    client.send("headers", 3)
    first, second, third = client.pop("headers", 3)
    assert (first.headers, first.group) == ({"trace": ["é", 1, None], "x-pgmq-group": "order-17"}, "order-17")
    assert (second.headers, second.group) == ({"x-pgmq-group": ""}, "")
    assert (third.headers, third.group) == (None, None)


@pytest.mark.parametrize(
    ("headers", "group", "error"),
    [
        ({"a": "\0"}, None, InvalidBodyError),
        ({"a": float("nan")}, None, InvalidBodyError),
        ({"a": object()}, None, InvalidBodyError),
        ([("a", 1)], None, InvalidArgumentError),
        (None, 17, InvalidArgumentError),
        (None, "a\0", InvalidBodyError),
        ({"x-pgmq-group": "a"}, "b", InvalidArgumentError),
    ],
)
def test_bad_headers_are_refused(headers: Any, group: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        encode_headers(headers, group)


# Batches.


def cut(bodies: Iterable[object]) -> list[int]:
    return [len(chunk) for chunk in batch.chunks(batch.encode(Codec(), bodies, None, None))]


def test_batch_is_cut_into_calls_by_number_and_by_bytes() -> None:
    assert cut(range(1_000)) == [1_000]
    assert cut(range(2_500)) == [1_000, 1_000, 500]
    assert cut(["a" * 3_000_000] * 5) == [2, 2, 1]
    assert cut(["a" * 9_000_000, 1, "a" * 9_000_000]) == [1, 1, 1]


def test_headers_that_a_generator_changes_and_gives_again_are_each_message_s_own() -> None:
    def numbered() -> Iterator[dict[str, int]]:
        headers = {"number": 0}
        for headers["number"] in range(3):
            yield headers

    encoded = list(batch.encode(Codec(), range(3), numbered(), None))
    assert [headers for _, headers in encoded] == [f'{{"number":{number}}}' for number in range(3)]


def test_batch_takes_from_a_generator_no_more_than_a_call_carries() -> None:
    taken = 0

    def bodies() -> Iterator[int]:
        nonlocal taken
        while True:
            taken += 1
            yield taken

    chunks = batch.chunks(batch.encode(Codec(), bodies(), None, None))
    assert taken == 0
    next(chunks)
    assert taken == 1_001
