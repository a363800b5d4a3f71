"""The types that the routes' signatures use."""

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Annotated, Any, Final

from msgspec import Meta, Struct, defstruct

from spanmq_service.guard.access import Scope
from spanmq_service.guard.caller import Caller
from spanmq_service.http.request_json import VERBATIM

QueueName = Annotated[str, Meta(description="The queue.", min_length=1, max_length=47)]

Seconds = Annotated[float, Meta(ge=0, le=3e9)]
Moment = Annotated[datetime, Meta(tz=True)]
Delay = Seconds | Moment
Id = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Limit = Annotated[int, Meta(ge=1, le=1_000)]
Bytes = Annotated[int, Meta(ge=0, le=2**31 - 1)]
BodyBytesMax = Annotated[
    Bytes | None,
    Meta(description='A body that is stored in more bytes is replaced by {"spanmq.cut": bytes}.'),
]
Text = Annotated[str, Meta(max_length=10_000)]
Name = Annotated[str, Meta(min_length=1, max_length=255)]
# The body of a message, which is stored as it is written.
Body = Annotated[Any, VERBATIM]

MaySend = Annotated[Caller, Scope("send")]
MayReceive = Annotated[Caller, Scope("receive")]
SeesSome = Annotated[Caller, Scope("look", "filtered")]
MayLook = Annotated[Caller, Scope("look")]
MayManage = Annotated[Caller, Scope("manage")]
MayLookAtAll = Annotated[Caller, Scope("look", "everything")]
MayManageAll = Annotated[Caller, Scope("manage", "everything")]


class RequestModel(Struct, forbid_unknown_fields=True):
    """The body of a request.

    Unknown members are errors, because a misspelt option would otherwise be ignored; so are values of other
    types, because `true` would otherwise be a second and "0" false.
    """


class Received(Struct, kw_only=True):
    """A message; `receipt` and `last_error` are present when it is held under a lease."""

    message_id: int
    attempt: int
    enqueued_at: Moment
    leased_until: Moment
    group: str | None
    headers: dict[str, Any] | None
    receipt: str | None = None
    last_error: str | None = None
    archived_at: Moment | None = None
    body: Any


class ReceivedMessages(Struct):
    """Messages."""

    messages: list[Received]


def answer(name: str, /, **members: Any) -> type[Struct]:
    """Return the type of an answer for the description: an object with members of these types."""
    return _answer(name, tuple(members.items()))


@cache
def _answer(name: str, members: tuple[tuple[str, Any], ...]) -> type[Struct]:
    return defstruct(name, members)


Existed = answer("Existed", existed=bool)
Removed = answer("Removed", removed=int)
Named = answer("Named", name=str)

Interval = Annotated[str, Meta(max_length=100)] | Annotated[int, Meta(ge=1, le=2**63 - 1)]
# The types of arguments of methods with a route in spanmq.doors, by their names there.
WORDS: Final[Mapping[str, Any]] = {
    "after": Id,
    "before": Id,
    "body": Body,
    "body_bytes_max": BodyBytesMax,
    "category": Annotated[str, Meta(max_length=20)],
    "budget": Annotated[int, Meta(ge=1, le=1_000)],
    "connections": Annotated[int, Meta(ge=1, le=2**31 - 1)],
    "keep_for": Seconds,
    "lake": Annotated[str, Meta(max_length=4_000)],
    "limit": Limit,
    "message_id": Id,
    "most": Annotated[int, Meta(ge=1, le=10_000)],
    "name": Name,
    "partition_interval": Interval,
    "pattern": Name,
    "quantity": Limit,
    "queue": QueueName,
    "receiver": Annotated[str, Meta(min_length=1, max_length=200, description="Its label or id.")],
    "retention_interval": Interval,
    "rule": Annotated[str, Meta(min_length=1, max_length=100)],
    "seconds": Annotated[float, Meta(gt=0, le=3e9)],
    "settled": Id,
    "step": Annotated[float, Meta(ge=1, le=3e9)],
    "task": Annotated[str, Meta(max_length=500)],
    "topic": Name,
    "worker": Annotated[str, Meta(min_length=1, max_length=1_000)],
}
# Those of other arguments, by what stands for the type of the parameter.
KINDS: Final[Mapping[Any, Any]] = {
    bool: bool,
    int: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)],
    float: float,
    str: Text,
    datetime: Moment,
    list[int]: Annotated[list[Id], Meta(max_length=1_000)],
    list[str]: Annotated[list[Text], Meta(max_length=1_000)],
    Any: dict[str, Any],
}
