"""Values by doors: each comes back as it went, or is refused where it is sent, as docs/reference/values.md says."""

import json
import math
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import psycopg
import pytest
from pydantic import AnyUrl, BaseModel, Field, PlainSerializer, SecretBytes, SecretStr, computed_field
from pydantic.dataclasses import dataclass as pydantic_dataclass
from service.tests.running import service
from typing_extensions import TypedDict

from spanmq import Client, RawJson
from spanmq.codec.encryption import Encryption
from spanmq.errors import InvalidArgumentError, InvalidBodyError, SpanmqError
from spanmq.tasks import Tasks
from spanmq.testing import drain

PAGE: Final = Path(__file__).parents[2] / "docs/reference/values.md"

Revealed = Annotated[SecretStr, PlainSerializer(SecretStr.get_secret_value, return_type=str)]


class Colour(Enum):
    RED = "red"


class Corner(Enum):
    TOP_LEFT = (0, 0)


class Free(BaseModel, extra="allow"):
    number: int


class Size(IntEnum):
    LARGE = 2


class Speed(StrEnum):
    FAST = "fast"


@dataclass
class Item:
    name: str
    at: datetime
    colour: Colour = Colour.RED


@dataclass
class Price:
    amount: Decimal


@dataclass
class Login:
    user: str
    password: SecretStr = field(compare=False)


@pydantic_dataclass
class Labelled:
    number: Annotated[int, Field(alias="no")]


class Known(TypedDict):
    number: int
    day: date


class Point(NamedTuple):
    x: int
    y: int


class Order(BaseModel, extra="forbid"):
    number: int = Field(alias="orderNumber")
    day: date = date(2013, 1, 1)

    @computed_field
    def double(self) -> int:
        return self.number * 2


class Large(Order):
    weight: int = 7


class Parcel(BaseModel):
    order: Order


class Account(BaseModel):
    password: SecretStr


class Open(BaseModel):
    password: Revealed


class Rated(BaseModel):
    rate: float


MOMENT: Final = datetime(2013, 1, 1, 5, 15, 0, 123456, tzinfo=UTC)
LATER: Final = datetime(2013, 7, 1, 5, 15, tzinfo=ZoneInfo("Europe/Berlin"))

# By the names in the page: the type in a signature, and for `parse`; and a value.
VALUES: Final[dict[str, tuple[Any, Any]]] = {
    "text": (str, "é \U0001f600 \\u0000"),
    "text with NUL": (str, "a\0b"),
    "half a surrogate pair": (str, "\ud800"),
    "key with NUL": (dict[str, int], {"a\0": 1}),
    "int of 400 digits": (int, 10**400),
    "float": (float, 0.1 + 0.2),
    "NaN": (float, math.nan),
    "infinity": (float, math.inf),
    "NaN in a model": (Rated, Rated(rate=math.nan)),
    "Decimal": (Decimal, Decimal("12345678901234567.890")),
    "Decimal NaN": (Decimal, Decimal("NaN")),
    "bool or None": (bool | None, None),
    "datetime": (datetime, MOMENT),
    "datetime of a zone": (datetime, LATER),
    "date": (date, date(2013, 1, 1)),
    "time": (time, time(5, 15, tzinfo=UTC)),
    "timedelta": (timedelta, timedelta(days=-1, microseconds=1)),
    "UUID": (UUID, UUID(int=1)),
    "Enum": (Colour, Colour.RED),
    "Enum of a tuple": (Corner, Corner.TOP_LEFT),
    "IntEnum": (Size, Size.LARGE),
    "StrEnum": (Speed, Speed.FAST),
    "bytes of text": (bytes, b"abc"),
    "other bytes": (bytes, b"\xff\0"),
    "Path": (Path, Path("/tmp/a")),
    "URL": (AnyUrl, AnyUrl("https://example.com/a")),
    "list": (list[int], [1, 2]),
    "tuple": (tuple[int, str], (1, "a")),
    "set": (set[int], {1, 2}),
    "frozenset": (frozenset[str], frozenset({"a"})),
    "dict with int keys": (dict[int, str], {1: "a"}),
    "dict with keys 1 and '1'": (dict[int | str, str], {1: "a", "1": "b"}),
    "dict with date keys": (dict[date, int], {date(2013, 1, 1): 1}),
    "Optional of a set": (set[int] | None, {1}),
    "dataclass": (Item, Item("a", MOMENT)),
    "dataclass with Decimal": (Price, Price(Decimal("1.10"))),
    "list of dataclasses": (list[Item], [Item("a", MOMENT)]),
    "Pydantic dataclass with alias": (Labelled, Labelled(no=1)),  # type: ignore[call-arg]
    "TypedDict": (Known, Known(number=1, day=date(2013, 1, 1))),
    "NamedTuple": (Point, Point(1, 2)),
    "model with alias and computed field": (Order, Order(orderNumber=1)),
    "model with extra fields": (Free, Free(number=1, other="a")),  # type: ignore[call-arg]
    "model with an extra date": (Free, Free(number=1, other=date(2013, 1, 1))),  # type: ignore[call-arg]
    "model in a union": (Order | Item | None, Order(orderNumber=1)),
    "subclass of the model in a model": (Parcel, Parcel(order=Large(orderNumber=1))),
    "SecretStr": (SecretStr, SecretStr("secret")),
    "SecretBytes": (SecretBytes, SecretBytes(b"secret")),
    "secret in a model": (Account, Account(password=SecretStr("secret"))),
    "secret in a dataclass": (Login, Login("ada", SecretStr("secret"))),
    "secret in a list": (list[SecretStr], [SecretStr("secret")]),
    "secret with a serializer": (Revealed, SecretStr("secret")),
    "model with a secret with a serializer": (Open, Open(password=SecretStr("secret"))),
    "any: a list in a dict": (Any, {"a": [1, "b", None]}),
    "any: set": (Any, {1}),
    "any: datetime": (Any, MOMENT),
    "any: Decimal": (Any, Decimal("1.5")),
    "any: NaN": (Any, [math.nan]),
    "any: int keys": (Any, {1: 2}),
    "any: secret": (Any, {"a": SecretStr("secret")}),
    "any: model": (Any, Order(orderNumber=1)),
}


# A body that is not parsed has no type but JSON's.
AS_JSON: Final[dict[type, Any]] = {
    datetime: MOMENT.isoformat(),
    dict: {"1": 2},
    Order: {"orderNumber": 1, "day": "2013-01-01"},
}


def is_same(sent: object, read: object) -> bool:
    """Return whether a value came back; a secret with what it hides, a field that no comparison looks at, too."""
    if isinstance(sent, Login) and isinstance(read, Login):
        return (sent.user, sent.password) == (read.user, read.password)
    return type(sent) is type(read) and sent == read


def outcome_of(sent: object, there_and_back: Callable[[], object]) -> str:
    try:
        read = there_and_back()
    except SpanmqError as error:
        return f"`{type(error).__name__}`"
    if is_same(sent, read):
        return "same"
    return "as JSON" if read == AS_JSON.get(type(sent)) else f"changed: {read!r}"


class Doors:
    """Sends values, and returns what comes out."""

    def __init__(self, tasks: Tasks, client: Client) -> None:
        self._tasks = tasks
        self._client = client
        self._count = 0

    @property
    def each(self) -> dict[str, Callable[[Any, Any], object]]:
        """The doors, by the heads of the columns."""
        return {"argument": self.argument, "result": self.result, "body": self.body}

    def argument(self, kind: Any, value: Any) -> object:
        taken: list[object] = []

        def take(value: Any) -> None:
            taken.append(value)

        take.__annotations__["value"] = kind
        self._task(take).send(value)
        drain(self._tasks, raises=False)
        return taken[0] if taken else "refused where it is read"

    def result(self, kind: Any, value: Any) -> object:
        def make() -> Any:
            return value

        make.__annotations__["return"] = kind
        sent = self._task(make, store_result=True).send()
        # It is done, whatever becomes of its result.
        assert drain(self._tasks) == 1
        assert self._client.inspect.state("values", sent.message_id) != "dead"
        return sent.wait(0)

    def body(self, kind: Any, value: Any) -> object:
        self._client.send("bodies", value)
        [message] = self._client.pop("bodies")
        try:
            return message.parse(kind)
        except InvalidBodyError as error:
            return error

    def _task(self, function: Callable[..., Any], **options: Any) -> Any:
        self._count += 1
        register: Any = self._tasks.task(name=f"task{self._count}", **options)
        return register(function)


@pytest.fixture(params=["plain", "sealed"])
def doors(database: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Doors]:
    if request.param == "sealed":
        monkeypatch.setenv("SPANMQ_ENCRYPTION_KEYS", f"a {b64encode(bytes(32)).decode()}")
    tasks = Tasks("values", dsn=database)
    tasks.create_queues()
    with Client(database, encryption=Encryption.from_environment()) as client:
        client.queues.create("bodies")
        yield Doors(tasks, client)
    tasks.close()


def table(title: str) -> dict[str, dict[str, str]]:
    """Return a table of the page: the cells of a row by its first cell, by the head of their column."""
    _, _, text = PAGE.read_text("utf-8").partition(f"\n## {title}\n")
    lines = [line for line in text.partition("\n## ")[0].splitlines() if line.startswith("|")]
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0].strip("`"): dict(zip(head[1:], row[1:], strict=True)) for row in rows}


def test_a_type_that_can_t_be_stored_is_refused_when_its_task_is_registered() -> None:
    tasks = Tasks("values")

    def make() -> Any: ...

    for kind in (SecretStr, list[Account], Login, Callable, set[type]):
        make.__annotations__["return"] = kind
        with pytest.raises(InvalidArgumentError, match="can't store a result of the type") as raised:
            tasks.task(store_result=True)(make)
        assert str(kind) in str(raised.value)
        # Only a result is stored.
        tasks.task(name=str(kind))(make)


# By the names in the page.
TEXTS: Final = {
    "12345678901234567.89": b"12345678901234567.89",
    "1.10": b"1.10",
    "1e400": b"1e400",
    "1e999999": b"1e999999",
    "integer of 5,000 digits": b"9" * 5_000,
    "NaN": b"NaN",
    "text with NUL": b'"a\\u0000b"',
    "half a surrogate pair": b'"\\ud800"',
    "a surrogate pair": b'"\\ud83d\\ude00"',
    "text that is not UTF-8": b'"\xff"',
    "500 brackets": b"[" * 500 + b"]" * 500,
    "100,000 brackets": b"[" * 100_000 + b"]" * 100_000,
}


def stored(dsn: str) -> list[Any]:
    """Empty the queue, and return the bodies in it, with each number as PostgreSQL writes it."""
    with psycopg.connect(dsn) as connection:
        rows = connection.execute("select message::text from pgmq.pop('bodies', 10)").fetchall()
    return [json.loads(text, parse_int=_digits, parse_float=_digits) for (text,) in rows]


def _digits(digits: str) -> str:
    # PostgreSQL writes no exponents.
    return "1e400" if digits == "1" + "0" * 400 else digits


@pytest.mark.parametrize("padding", [0, 200_000], ids=["small", "large"])
def test_each_json_is_stored_as_it_is_or_refused(database: str, tmp_path: Path, padding: int) -> None:
    with Client(database) as client, service(database, tmp_path) as running, running.client() as http:
        client.queues.create("bodies")
        client.topics.bind("topic", "bodies")
        target = {"X-Amz-Target": "AmazonSQS.SendMessage"}

        def post(path: str, content: bytes, headers: dict[str, str] | None = None) -> int:
            kind = {"Content-Type": "application/json"}
            return http.post(path, content=content, headers={**kind, **(headers or {})}).status_code

        def cell(text: bytes, send: Callable[[bytes], int]) -> str:
            expected: Any = "x" * padding
            try:
                status = send(b"[" + text + b',"' + expected.encode() + b'"]')
            except SpanmqError as error:
                return f"`{type(error).__name__}`"
            bodies = stored(database)
            if status >= 400:
                assert bodies == []
                return str(status)
            expected = [json.loads(text, parse_int=str, parse_float=str), expected]
            return "same" if bodies == [expected] else f"changed: {bodies!r}"

        def send_raw(body: bytes) -> int:
            client.send("bodies", RawJson(body))
            return 201

        doors: dict[str, Callable[[bytes], int]] = {
            "message": lambda body: post("/v1/queues/bodies/messages", b'{"body":' + body + b"}"),
            "batch": lambda body: post(
                "/v1/queues/bodies/messages/batch", b'{"messages":[{"body":' + body + b"}]}"
            ),
            "topic": lambda body: post("/v1/topics/topic/messages", b'{"body":' + body + b"}"),
            "`RawJson`": send_raw,
        }
        found = {
            name: {door: cell(text, send) for door, send in doors.items()} for name, text in TEXTS.items()
        }
        for name, text in TEXTS.items():
            # A body of SQS is a text: this one, or in a text the JSON.
            body = text if text.startswith(b'"') else json.dumps(text.decode("latin-1")).encode()
            status = post("/", b'{"QueueUrl":"/bodies","MessageBody":' + body + b"}", target)
            bodies = stored(database)
            found[name]["SQS"] = "same" if bodies and bodies == [json.loads(body)] else str(status)
            assert status == 200 or bodies == []
    assert found == table("JSON")


def test_each_value_comes_back_or_is_refused_where_it_is_sent(doors: Doors) -> None:
    found = {
        name: {door: outcome_of(value, partial(send, kind, value)) for door, send in doors.each.items()}
        for name, (kind, value) in VALUES.items()
    }
    assert found == table("Values of Python")
