"""A call of a task, and the options it is sent with."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, TypedDict

from spanmq.client.argument import Delay, Seconds
from spanmq.client.functions import DedupUntil, OnDuplicate
from spanmq.errors import InvalidArgumentError


class Place(TypedDict, total=False):
    """The transaction to send in: a connection of psycopg or asyncpg, or a session of other software."""

    connection: Any
    session: Any


class Options(Place, total=False):
    """The options of `using`: see docs/guides/tasks.md."""

    delay: Seconds
    at: datetime
    group: str
    priority: int
    expires_in: Seconds
    unique: str
    unique_for: Seconds
    unique_until: DedupUntil | None
    on_duplicate: OnDuplicate
    headers: Mapping[str, Any]
    queue: str


NO_HEADERS: Final[Mapping[str, Any]] = MappingProxyType({})


# Not frozen, and its default headers are shared: calls are made by the ten thousand.
@dataclass(slots=True)
class Call:
    """A `task`, by its name, with its arguments, checked and ready: for `send_many`, or as the result of another task.

    `body` is its message's, JSON text, and `queue` where that is sent. `delay` and `expires_in` are seconds or a
    timedelta, `delay` also a moment; `group`, `priority` (0 to 9) and `headers`, a mapping, are those of `Client.send`.
    With `unique`, a key, it is not sent again within `unique_for` seconds, or with `unique_until` as long as its
    message holds the key; `on_duplicate` says what becomes of it then. `stores_result` says that its task stores what
    it returns, `takes_results` that it has a parameter for the results of the batch that it follows. `types` are the
    names and the Python types of its arguments, empty where they are not known.
    """

    task: str
    body: str
    queue: str
    delay: Delay | None = None
    group: str | None = None
    priority: int = 0
    expires_in: Seconds | None = None
    unique: str | None = None
    unique_for: Seconds = 300.0
    unique_until: DedupUntil | None = None
    on_duplicate: OnDuplicate = "keep"
    headers: Mapping[str, Any] = field(default_factory=lambda: NO_HEADERS)
    stores_result: bool = False
    takes_results: bool = False
    # The names and the Python types of the arguments; empty: not known.
    types: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The end of the batch with this `id`: of its `total` messages `dead` are dead letters, `done` are all others."""

    id: int
    total: int
    done: int
    dead: int


def end_call(then: object, what: str) -> Call:
    """Return the call `then`, or that of a task without arguments: what a batch or a wait ends with.

    Raises InvalidArgumentError for another object, and for a call with other options than a group and headers.
    """
    call = getattr(then, "call", None)
    last = call() if callable(call) else then
    if not isinstance(last, Call):
        raise InvalidArgumentError(f"a {what} ends with a call, got {last!r}")
    if last.priority or (last.delay, last.expires_in, last.unique) != (None, None, None):
        raise InvalidArgumentError(f"what ends a {what} has a group and headers, and no other option")
    return last
