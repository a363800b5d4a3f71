"""`Message.parse`: what the encoder made plain comes back, in depth."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime, time
from enum import Enum
from typing import Annotated, Any, NewType

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanmq.body import Codec
from spanmq.errors import InvalidBodyError
from spanmq.message import Message

Key = NewType("Key", uuid.UUID)


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
    """Give what a receiver makes of what was sent."""
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
    ],
)
def test_body_that_does_not_fit_is_refused_with_the_field(body: Any, text: str) -> None:
    with pytest.raises(InvalidBodyError, match="message 7 is no Narrow: ") as caught:
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
