"""How calls of tasks reach their queues: one batch for all that have the same options."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Unpack
from weakref import WeakKeyDictionary

from spanmq.client import AsyncClient, Client
from spanmq.client.dsn import default_dsn
from spanmq.codec.body import RawJson
from spanmq.codec.encryption import Encryption
from spanmq.errors import InvalidArgumentError
from spanmq.tasks.task import Call, Place, Sent

if TYPE_CHECKING:
    from spanmq.tasks.registry import Tasks


class Batch:
    """Calls with the same options, one `send_batch` for all."""

    def __init__(self, first: Call) -> None:
        self.queue = first.queue
        self._options = {"delay": first.delay, "priority": first.priority, "expires_in": first.expires_in}
        self._unique_for = None if first.unique is None else first.unique_for
        self._bodies: list[str] = []
        self._headers: list[Mapping[str, Any]] = []
        self._groups: list[str | None] = []
        self._dedup_ids: list[str] = []
        self.places: list[int] = []

    def add(self, place: int, call: Call) -> None:
        """Add what is sent of a call, not the call: garbage collection counts objects that live long."""
        self.places.append(place)
        self._bodies.append(call.body)
        self._headers.append(call.headers)
        self._groups.append(call.group)
        if self._unique_for is not None:
            self._dedup_ids.append(f"{call.task}:{call.unique}")

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `send_batch`."""
        bodies = map(RawJson, self._bodies)
        arguments: dict[str, Any] = {"queue": self.queue, "bodies": bodies, **self._options}
        if any(self._headers):
            arguments["headers"] = self._headers
        if any(group is not None for group in self._groups):
            arguments["group"] = self._groups
        if self._unique_for is not None:
            arguments |= {"dedup_ids": self._dedup_ids, "dedup_for": self._unique_for}
        return arguments


def batches(calls: Iterable[Call]) -> list[Batch]:
    """Divide calls into batches."""
    found: dict[Any, Batch] = {}
    for place, call in enumerate(calls):
        if not isinstance(call, Call):
            raise InvalidArgumentError(
                f"send_many takes calls, got {call!r}", hint="ship.call(order) makes one."
            )
        unique_for = None if call.unique is None else call.unique_for
        key = (call.queue, call.delay, call.priority, call.expires_in, unique_for)
        if (batch := found.get(key)) is None:
            batch = found[key] = Batch(call)
        batch.add(place, call)
    return [*found.values()]


@dataclass(frozen=True, slots=True)
class SentBatch:
    """A batch that was sent, with its messages."""

    batch_id: int
    messages: list[Sent]


@dataclass(frozen=True, slots=True)
class BatchCall:
    """Calls, and one that is sent when their messages are settled; also as the result of a task."""

    calls: tuple[Call, ...]
    then: Call
    tasks: Tasks = field(repr=False)

    def send(self, **place: Unpack[Place]) -> SentBatch:
        """Send it, all or nothing."""
        client = self.tasks.clients.of(**place)
        return send_batch(self.tasks, client, self)

    async def send_async(self, **place: Unpack[Place]) -> SentBatch:
        """Send it from async code."""
        client = self.tasks.clients.of_async(**place)
        return await send_batch_async(self.tasks, client, self)


def send(tasks: Tasks, client: Client, calls: Iterable[Call]) -> list[Sent]:
    """Send calls through a client, all or none, within the middleware."""
    sent: list[Sent] = tasks.around_sends(partial(_send, tasks, client))(calls)
    return sent


async def send_async(tasks: Tasks, client: AsyncClient, calls: Iterable[Call]) -> list[Sent]:
    """Send calls from async code; the twin of `send`."""
    sent: list[Sent] = await tasks.around_sends(partial(_send_async, tasks, client))(calls)
    return sent


def _send(tasks: Tasks, client: Client, calls: Iterable[Call]) -> list[Sent]:
    divided = batches(calls)
    with client.transaction() if len(divided) > 1 else nullcontext(client) as within:
        return sent_of(tasks, divided, [within.send_batch(**each.arguments()) for each in divided])


async def _send_async(tasks: Tasks, client: AsyncClient, calls: Iterable[Call]) -> list[Sent]:
    divided = batches(calls)
    async with client.transaction() if len(divided) > 1 else nullcontext(client) as within:
        return sent_of(tasks, divided, [await within.send_batch(**each.arguments()) for each in divided])


def sent_of(tasks: Tasks, divided: Sequence[Batch], ids: Sequence[list[int]]) -> list[Sent]:
    """Return what was sent, in the order of the calls."""
    sent = {
        place: Sent(batch.queue, message_id, tasks)
        for batch, message_ids in zip(divided, ids, strict=True)
        for place, message_id in zip(batch.places, message_ids, strict=True)
    }
    return [sent[place] for place in range(len(sent))]


def send_batch(tasks: Tasks, client: Client, batch: BatchCall) -> SentBatch:
    """Send a batch through a client, within the middleware."""
    sent: SentBatch = tasks.around_sends(partial(_send_batch, tasks, client))([*batch.calls, batch.then])
    return sent


async def send_batch_async(tasks: Tasks, client: AsyncClient, batch: BatchCall) -> SentBatch:
    """Send a batch from async code; the twin of `send_batch`."""
    sends = tasks.around_sends(partial(_send_batch_async, tasks, client))
    sent: SentBatch = await sends([*batch.calls, batch.then])
    return sent


def _send_batch(tasks: Tasks, client: Client, calls: Iterable[Call]) -> SentBatch:
    *parts, then = calls
    with client.transaction() as within:
        sent = _send(tasks, within, parts)
        batch_id = within.batches.create(
            then.queue, RawJson(then.body), ids_by_queue(sent), headers=then.headers, group=then.group
        )
    return SentBatch(batch_id, sent)


async def _send_batch_async(tasks: Tasks, client: AsyncClient, calls: Iterable[Call]) -> SentBatch:
    *parts, then = calls
    async with client.transaction() as within:
        sent = await _send_async(tasks, within, parts)
        batch_id = await within.batches.create(
            then.queue, RawJson(then.body), ids_by_queue(sent), headers=then.headers, group=then.group
        )
    return SentBatch(batch_id, sent)


def ids_by_queue(sent: Sequence[Sent]) -> dict[str, list[int]]:
    """Return the ids of messages by their queues."""
    found: dict[str, list[int]] = {}
    for each in sent:
        found.setdefault(each.queue, []).append(each.message_id)
    return found


class Clients:
    """The clients that send when the caller has no connection: one a process, one an event loop."""

    def __init__(
        self,
        dsn: str | Callable[[], str] | None,
        place: Callable[[], Any] | None,
        options: Mapping[str, Any],
    ) -> None:
        self.dsn = dsn
        self._place = place
        self._options = {**options}
        self._lock = threading.Lock()
        self._client: Client | None = None
        self._process = 0
        self._async_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncClient] = WeakKeyDictionary()

    def address(self) -> str:
        """Return the DSN of the tasks, else the one that a client uses: SPANMQ_DSN or the embedded server."""
        return (self.dsn() if callable(self.dsn) else self.dsn) or default_dsn()

    @cached_property
    def encryption(self) -> Encryption | None:
        """Return the encryption that the environment asks for, as a worker does."""
        return Encryption.from_environment()

    def client(self) -> Client:
        """Return the client of this process."""
        with self._lock:
            if self._client is None or self._process != os.getpid():
                self._client = Client(self.address(), encryption=self.encryption, **self._options)
                self._process = os.getpid()
            return self._client

    def async_client(self) -> AsyncClient:
        """Return the client of this event loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._async_clients:
            self._async_clients[loop] = AsyncClient(
                self.address(), encryption=self.encryption, **self._options
            )
        return self._async_clients[loop]

    def of(self, connection: Any = None, session: Any = None) -> Client:
        """Return a client for the caller's transaction, else that of the process."""
        within = given(connection, session)
        if within is None and self._place is not None:
            within = self._place()
        if within is None:
            return self.client()
        return Client(connection=within, encryption=self.encryption)

    def of_async(self, connection: Any = None, session: Any = None) -> AsyncClient:
        """Return a client for the caller's transaction, else that of the loop."""
        within = given(connection, session)
        if within is None:
            return self.async_client()
        return AsyncClient(connection=within, encryption=self.encryption)

    def close(self) -> None:
        """Close the client of this process."""
        if self._client is not None and self._process == os.getpid():
            self._client.close()
        self._client = None

    async def close_async(self) -> None:
        """Close the client of this event loop."""
        client = self._async_clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()


def given(connection: Any, session: Any) -> Any:
    """Return the one of the two that the caller named, or None."""
    if connection is not None and session is not None:
        raise InvalidArgumentError("a task is sent through a connection or a session, not both")
    return session if connection is None else connection
