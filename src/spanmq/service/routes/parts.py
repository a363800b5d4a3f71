"""The types that the routes' signatures use."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import Depends, Path, Query
from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    create_model,
)

from spanmq.service.backend import Backend, backend_of
from spanmq.service.guard.access import Scope
from spanmq.service.guard.caller import Caller
from spanmq.service.http.request_json import VERBATIM


def moment(value: object) -> datetime:
    """Parse a time in ISO 8601. Pydantic would accept a number, and a string that contains one."""
    try:
        return datetime.fromisoformat(value)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise ValueError("a time must be a string in ISO 8601, with a time zone") from error


def _kind_of_delay(value: object) -> str:
    return "time" if isinstance(value, str) else "seconds"


QueueName = Annotated[str, Path(description="The queue.", min_length=1, max_length=47)]
BackendDependency = Annotated[Backend, Depends(backend_of)]

Seconds = Annotated[float, Field(ge=0, le=3e9, allow_inf_nan=False)]
Moment = Annotated[AwareDatetime, BeforeValidator(moment)]
Delay = Annotated[
    Annotated[Seconds, Tag("seconds")] | Annotated[Moment, Tag("time")], Discriminator(_kind_of_delay)
]
Id = Annotated[int, Field(ge=0, lt=2**63)]
Limit = Annotated[int, Query(ge=1, le=1_000)]
BodyBytesMax = Annotated[
    int | None,
    Query(
        ge=0,
        lt=2**31,
        description='A body that is stored in more bytes is replaced by {"spanmq.cut": bytes}.',
    ),
]
Text = Annotated[str, Field(max_length=10_000)]
Name = Annotated[str, Path(min_length=1, max_length=255)]
# The body of a message, which is stored as it is written.
Body = Annotated[Any, VERBATIM]

MaySend = Annotated[Caller, Depends(Scope("send"))]
MayReceive = Annotated[Caller, Depends(Scope("receive"))]
SeesSome = Annotated[Caller, Depends(Scope("look", "filtered"))]
MayLook = Annotated[Caller, Depends(Scope("look"))]
MayManage = Annotated[Caller, Depends(Scope("manage"))]
MayLookAtAll = Annotated[Caller, Depends(Scope("look", "everything"))]
MayManageAll = Annotated[Caller, Depends(Scope("manage", "everything"))]


class Given(BaseModel):
    """The body of a request.

    Unknown members are errors, because a misspelt option would otherwise be ignored; so are values of other
    types, because `true` would otherwise be a second and "0" false.
    """

    model_config = ConfigDict(extra="forbid", strict=True)


class Received(BaseModel):
    """A message; `receipt` and `last_error` are present when it is held under a lease."""

    message_id: int
    attempt: int
    enqueued_at: AwareDatetime
    leased_until: AwareDatetime
    group: str | None
    headers: dict[str, Any] | None
    receipt: str | None = None
    last_error: str | None = None
    archived_at: AwareDatetime | None = None
    body: Any


class ReceivedMessages(BaseModel):
    """Messages."""

    messages: list[Received]


def answer(model: str, /, **members: Any) -> type[BaseModel]:
    """Return the model of an answer for the description: an object with members of these types."""
    fields: dict[str, Any] = {name: (kind, ...) for name, kind in members.items()}
    return create_model(model, **fields)


Existed = answer("Existed", existed=bool)
Removed = answer("Removed", removed=int)
Named = answer("Named", name=str)
