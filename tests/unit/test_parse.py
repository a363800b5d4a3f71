"""`Message.parse`: what the encoder made plain comes back, in depth."""

from __future__ import annotations

import typing
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, make_dataclass
from datetime import UTC, date, datetime, time
from enum import Enum, IntEnum, StrEnum
from typing import Annotated, Any, Final, Generic, Literal, NamedTuple, NewType, Protocol, TypedDict, TypeVar

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanmq.codec.body import Codec
from spanmq.errors import InvalidBodyError
from spanmq.model import Message

Key = NewType("Key", uuid.UUID)
Name = NewType("Name", str)
Content = TypeVar("Content")


class Colour(Enum):
    RED = "red"
    BLUE = 2


class Model(pydantic.BaseModel):
    day: date


@pydantic.dataclasses.dataclass
class Checked:
    day: date
    number: int


@dataclass(frozen=True, slots=True)
class Leaf:
    text: str
    at: datetime
    colour: Colour = Colour.RED


@dataclass(kw_only=True)
class Tree:
    leaf: Leaf
    leaves: list[Leaf] = field(default_factory=list)
    some: Sequence[Leaf] = field(default_factory=list)
    by_name: Mapping[str, Leaf] = field(default_factory=dict)
    pair: tuple[Leaf, int] | None = None
    days: tuple[date, ...] = ()
    anything: tuple = ()  # type: ignore[type-arg]
    key: Key | None = None
    at: time = time(0)
    either: date | Leaf | int | None = None
    free: Any = None
    model: Model | None = None
    noted: Annotated[date | None, "a remark"] = None
    child: Tree | None = None
    counted: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.counted = len(self.leaves)


@dataclass
class Narrow:
    leaf: Leaf
    numbers: tuple[int, int] = (0, 0)
    kind: Literal["narrow"] = "narrow"


class Planet(Enum):
    EARTH = (5.9, 6.3)
    LANDING = date(1969, 7, 20)


class Size(IntEnum):
    SMALL = 1


class Letter(StrEnum):
    A = "a"


class Options(TypedDict):
    retries: int


class Sized(Protocol):
    size: int


class Stop(NamedTuple):
    city: str
    day: date


@dataclass
class Created:
    number: int
    by: str
    what: Literal["created"] = "created"


@dataclass
class Deleted:
    number: int
    by: str
    what: Literal["deleted"] = "deleted"


@dataclass
class Moved:
    number: int
    by: str
    to: str


@dataclass
class Envelope(Generic[Content]):
    content: Content
    others: list[Content] = field(default_factory=list)


@dataclass
class Hidden:
    unknown: NotImported  # type: ignore[name-defined]  # noqa: F821


@dataclass
class WithArgument:
    number: int
    times: InitVar[int] = 2

    def __post_init__(self, times: int) -> None:
        self.number *= times


def message_of(body: Any) -> Message:
    now = datetime.now(UTC)
    return Message(
        queue="orders", message_id=7, body=body, headers=None, attempt=1, enqueued_at=now, leased_until=now
    )


def again(value: object) -> Any:
    """Return what a receiver makes of what was sent."""
    return message_of(Codec().decode(Codec().encode(value).encode())).parse(type(value))


leaves = st.builds(
    Leaf,
    text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    at=st.datetimes(timezones=st.just(UTC)),
    colour=st.sampled_from(Colour),
)
trees = st.recursive(
    st.builds(Tree, leaf=leaves),
    lambda inner: st.builds(
        Tree,
        leaf=leaves,
        leaves=st.lists(leaves, max_size=3),
        by_name=st.dictionaries(st.sampled_from("abc"), leaves),
        some=st.lists(leaves, max_size=2),
        pair=st.none() | st.tuples(leaves, st.integers(-9, 9)),
        days=st.lists(st.dates(), max_size=2).map(tuple),
        anything=st.lists(st.integers(0, 9), max_size=2).map(tuple),
        key=st.none() | st.uuids().map(Key),
        at=st.times(),
        either=st.none() | st.dates() | leaves | st.integers(0, 9),
        model=st.none() | st.builds(Model, day=st.dates()),
        noted=st.none() | st.dates(),
        free=st.none() | st.integers(0, 9) | st.dictionaries(st.sampled_from("abc"), st.integers(0, 9)),
        child=st.none() | inner,
    ),
    max_leaves=4,
)


@given(trees)
def test_dataclass_comes_back_as_it_was_sent(tree: Tree) -> None:
    assert again(tree) == tree


@pytest.mark.parametrize("value", [Model(day=date(2013, 1, 1)), Checked(date(2013, 1, 1), 3)])
def test_pydantic_checks_what_is_its_own(value: object) -> None:
    assert again(value) == value


def test_dataclass_of_pydantics_refuses_by_its_own_rules() -> None:
    with pytest.raises(InvalidBodyError, match="valid integer"):
        message_of({"day": "2013-01-01", "number": "x"}).parse(Checked)


DAY, NOON = date(2013, 1, 1), datetime(2013, 1, 1, 12, tzinfo=UTC)
A_LEAF = Leaf("a", NOON)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Any, {"any": ["thing"]}),
        (dict[str, Any], {"a": 1, "b": [2]}),
        (list[Any], [1, "a"]),
        (Any | None, {"a": 1}),
        (typing.List, [1]),  # noqa: UP006
        (typing.Tuple, (1, 2)),  # noqa: UP006
        (Options, {"retries": 3}),
        (Options | None, {"retries": 3}),
        (Sized, {"size": 1}),
        (Sized | None, 5),
        (Stop, Stop("Rome", DAY)),
        (list[Stop], [Stop("Rome", DAY)]),
        (datetime | date, DAY),
        (datetime | date, NOON),
        (date | datetime, NOON),
        (str | date, "2013-01-01"),
        (Planet, Planet.EARTH),
        (Planet, Planet.LANDING),
        (dict[int, Leaf], {1: A_LEAF, -2: A_LEAF}),
        (dict[Size, int], {Size.SMALL: 1}),
        (dict[Letter, int], {Letter.A: 1}),
        (dict[bool, int], {"true": 1}),
        (Final[date], DAY),
        (Iterable[date], [DAY]),
        (Literal["a", Colour.BLUE], Colour.BLUE),
        (Literal["a"] | Leaf, A_LEAF),
        (Name | Leaf, A_LEAF),
        (Annotated[str, "a remark"] | Leaf, A_LEAF),
        (Created | Deleted, Deleted(1, "me")),
        (Deleted | Created, Created(1, "me")),
        (Narrow | Moved | dict, Moved(1, "me", "there")),
        (Envelope[Leaf], Envelope(A_LEAF, [A_LEAF])),
        (Envelope[Leaf | None], Envelope(None)),
        (list[Envelope[date]], [Envelope(DAY, [DAY])]),
        (Envelope, Envelope(1)),
    ],
    ids=str,
)
def test_field_of_any_annotation_comes_back(annotation: Any, value: object) -> None:
    body = again(make_dataclass("Body", [("value", annotation)])(value))
    assert body.value == value
    assert type(body.value) is type(value)


def test_dataclass_that_would_lose_a_field_gives_way_to_one_that_would_not() -> None:
    body = make_dataclass("Body", [("value", Leaf | Created | Moved)])(Moved(1, "me", "there"))
    assert again(body) == body


def test_field_that_a_sender_ahead_has_added_makes_no_dictionary_of_a_dataclass() -> None:
    body = make_dataclass("Body", [("value", Leaf | dict[str, Any])])(A_LEAF)
    newer = {"value": {**LEAF, "new": 1}}
    assert message_of(newer).parse(type(body)).value == Leaf("a", datetime(2013, 1, 1, tzinfo=UTC))


def test_generic_dataclass_is_made_with_its_arguments() -> None:
    sent = Codec().decode(Codec().encode(Envelope(A_LEAF)).encode())
    assert message_of(sent).parse(Envelope[Leaf]) == Envelope(A_LEAF)


def test_dataclass_nested_deeper_than_python_goes_is_refused() -> None:
    body: dict[str, Any] = {"leaf": LEAF}
    for _ in range(900):
        body = {"leaf": LEAF, "child": body}
    with pytest.raises(InvalidBodyError, match="recursion"):
        message_of(body).parse(Tree)


def test_argument_that_is_no_field_keeps_its_default() -> None:
    assert message_of({"number": 2, "times": 100}).parse(WithArgument).number == 4


LEAF = {"text": "a", "at": "2013-01-01T00:00:00+00:00"}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (None, "expected Narrow, got NoneType"),
        ([1], "expected Narrow, got list"),
        ({}, "missing 1 required positional argument: 'leaf'"),
        ({"leaf": "x"}, "Narrow.leaf: expected Leaf, got str"),
        ({"leaf": {**LEAF, "at": "noon"}}, "Narrow.leaf: Leaf.at: Invalid isoformat"),
        ({"leaf": {**LEAF, "at": 12}}, "Narrow.leaf: Leaf.at: expected datetime, got int"),
        ({"leaf": {**LEAF, "colour": "green"}}, "Narrow.leaf: Leaf.colour: 'green' is not a valid"),
        ({"leaf": LEAF, "numbers": [1]}, "Narrow.numbers: expected 2 elements, got 1"),
        ({"leaf": LEAF, "kind": "wide"}, "Narrow.kind: expected 'narrow', got 'wide'"),
    ],
)
def test_body_that_does_not_fit_is_refused_with_the_field(body: Any, text: str) -> None:
    with pytest.raises(InvalidBodyError, match="message 7 is not a Narrow: ") as caught:
        message_of(body).parse(Narrow)
    assert text in str(caught.value)
    assert caught.value.queue == "orders"
    assert caught.value.__cause__ is not None


def test_union_of_which_nothing_fits_says_why() -> None:
    with pytest.raises(InvalidBodyError, match=r"(?s)Tree\.model: .*valid date"):
        message_of({"leaf": LEAF, "model": {"day": "x"}}).parse(Tree)


def test_annotation_that_cannot_be_read_is_named() -> None:
    with pytest.raises(NameError, match="Hidden can't be read: name 'NotImported' is not defined"):
        message_of({"unknown": 1}).parse(Hidden)


def test_only_classes_are_made() -> None:
    for kind in (int, Leaf("a", datetime.now(UTC))):
        with pytest.raises(TypeError, match="neither a dataclass nor a Pydantic model"):
            message_of({}).parse(kind)  # type: ignore[arg-type]
