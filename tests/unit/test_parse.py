"""`Message.parse`: what the encoder made plain comes back, in depth, as Pydantic reads it."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from enum import Enum
from typing import Annotated, Any, Generic, Literal, NewType, TypeVar

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanmq.codec.body import Codec
from spanmq.errors import ExtraNotInstalledError, InvalidBodyError
from spanmq.model import Message

Key = NewType("Key", uuid.UUID)
Content = TypeVar("Content")


class Colour(Enum):
    RED = "red"
    BLUE = 2


class Model(pydantic.BaseModel):
    day: date


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
    by_number: dict[int, Leaf] = field(default_factory=dict)
    pair: tuple[Leaf, int] | None = None
    days: tuple[date, ...] = ()
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
class Created:
    number: int
    what: Literal["created"] = "created"


@dataclass
class Deleted:
    number: int
    what: Literal["deleted"] = "deleted"


@dataclass
class Envelope(Generic[Content]):
    content: Content


@dataclass
class Hidden:
    unknown: NotImported  # type: ignore[name-defined]  # noqa: F821


def message_of(body: Any) -> Message:
    now = datetime.now(UTC)
    return Message(
        queue="orders", message_id=7, body=body, headers=None, attempt=1, enqueued_at=now, leased_until=now
    )


def again(value: object, kind: Any = None) -> Any:
    """Return what a receiver makes of what was sent."""
    return message_of(Codec().decode(Codec().encode(value).encode())).parse(kind or type(value))


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
        by_number=st.dictionaries(st.integers(-9, 9), leaves, max_size=2),
        some=st.lists(leaves, max_size=2),
        pair=st.none() | st.tuples(leaves, st.integers(-9, 9)),
        days=st.lists(st.dates(), max_size=2).map(tuple),
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


def test_any_type_that_pydantic_knows_is_made() -> None:
    leaf = Leaf("a", datetime(2013, 1, 1, 12, tzinfo=UTC))
    assert again(Model(day=date(2013, 1, 1))) == Model(day=date(2013, 1, 1))
    assert again([Deleted(1), Created(2)], list[Created | Deleted]) == [Deleted(1), Created(2)]
    assert again(Envelope(leaf), Envelope[Leaf]) == Envelope(leaf)


def test_what_a_sender_ahead_has_added_is_ignored() -> None:
    assert message_of({"number": 1, "what": "created", "new": 1}).parse(Created) == Created(1)


def test_body_that_does_not_fit_is_refused_with_the_fields_and_without_its_values() -> None:
    body = {"leaf": {"text": "secret", "at": "noon"}, "model": {"day": "x"}}
    with pytest.raises(InvalidBodyError, match="message 7 is not a Tree: ") as caught:
        message_of(body).parse(Tree)
    assert "leaf.at: " in str(caught.value)
    assert "; model.day: " in str(caught.value)
    assert "secret" not in str(caught.value)
    assert caught.value.queue == "orders"
    with pytest.raises(InvalidBodyError, match="message 7 is not a Model: body: "):
        message_of([1]).parse(Model)


def test_body_nested_deeper_than_pydantic_reads_is_refused() -> None:
    body: dict[str, Any] = {"text": "a"}
    for _ in range(900):
        body = {"child": body}
    with pytest.raises(InvalidBodyError, match="depth"):
        message_of(body).parse(Tree)


@pytest.mark.parametrize("kind", [Hidden, Leaf("a", datetime(2013, 1, 1, tzinfo=UTC)), 7])
def test_what_pydantic_does_not_know_is_an_error_of_the_call(kind: Any) -> None:
    with pytest.raises(TypeError, match="can't be parsed"):
        message_of({"unknown": 1}).parse(kind)


def test_without_pydantic_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic", None)

    @dataclass
    class Order:
        number: int

    with pytest.raises(ExtraNotInstalledError, match="pip install") as caught:
        message_of({"number": 1}).parse(Order)
    assert caught.value.extra == "tasks"
