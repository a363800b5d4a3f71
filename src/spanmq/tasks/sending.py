"""How calls of tasks reach their queues: one batch for all that have the same options."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypedDict
from weakref import WeakKeyDictionary

from spanmq.client import AsyncClient, Client
from spanmq.client.call import Delay, Seconds
from spanmq.client.dsn import default_dsn
from spanmq.codec.encryption import Encryption
from spanmq.errors import InvalidArgumentError
from spanmq.tasks.task import Call, Sent, SentBatch

if TYPE_CHECKING:
    from spanmq.tasks.registry import Tasks


class Batch(TypedDict, total=False):
    """The arguments of a client's `send_batch`."""

    queue: str
    bodies: list[Any]
    headers: Any
    group: Any
    delay: Delay | None
    priority: int
    expires_in: Seconds | None
    dedup_ids: list[str | None]
    dedup_for: Seconds


def batches(calls: Sequence[Call]) -> list[tuple[list[int], Batch]]:
    """Divide calls into batches with the same options; each with the places of its calls."""
    found: dict[Any, list[int]] = {}
    for place, call in enumerate(calls):
        if not isinstance(call, Call):
            raise InvalidArgumentError(
                f"send_many takes calls, got {call!r}", hint="ship.call(order) makes one."
            )
        is_unique = call.dedup_id is not None
        key = (
            call.queue,
            call.delay,
            call.priority,
            call.expires_in,
            is_unique,
            is_unique and call.dedup_for,
        )
        found.setdefault(key, []).append(place)
    return [(places, _batch([calls[place] for place in places])) for places in found.values()]


def _batch(calls: list[Call]) -> Batch:
    first = calls[0]
    batch = Batch(
        queue=first.queue,
        bodies=[call.body for call in calls],
        delay=first.delay,
        priority=first.priority,
        expires_in=first.expires_in,
    )
    if any(call.headers for call in calls):
        batch["headers"] = [call.headers for call in calls]
    if any(call.group is not None for call in calls):
        batch["group"] = [call.group for call in calls]
    if first.dedup_id is not None:
        batch["dedup_ids"] = [call.dedup_id for call in calls]
        batch["dedup_for"] = first.dedup_for
    return batch


def send(tasks: Tasks, client: Client, calls: Sequence[Call]) -> list[Sent]:
    """Send calls, all or none."""
    divided = batches(calls)
    with client.transaction() if len(divided) > 1 else nullcontext(client) as within:
        return sent_of(tasks, divided, [within.send_batch(**batch) for _, batch in divided])


async def send_async(tasks: Tasks, client: AsyncClient, calls: Sequence[Call]) -> list[Sent]:
    """Send calls from async code; the twin of `send`."""
    divided = batches(calls)
    async with client.transaction() if len(divided) > 1 else nullcontext(client) as within:
        return sent_of(tasks, divided, [await within.send_batch(**batch) for _, batch in divided])


def sent_of(tasks: Tasks, divided: Sequence[tuple[list[int], Batch]], ids: list[list[int]]) -> list[Sent]:
    """Return what was sent, in the order of the calls."""
    sent: dict[int, Sent] = {}
    for (places, batch), message_ids in zip(divided, ids, strict=True):
        sent.update(zip(places, (Sent(batch["queue"], each, tasks) for each in message_ids), strict=True))
    return [sent[place] for place in sorted(sent)]


def send_batch(tasks: Tasks, client: Client, calls: Sequence[Call]) -> SentBatch:
    """Send all calls but the last, which is sent when they are settled."""
    *parts, then = calls
    with client.transaction() as within:
        sent = send(tasks, within, parts)
        batch_id = within.batches.create(
            then.queue, then.body, ids_by_queue(sent), headers=then.headers, group=then.group
        )
    return SentBatch(batch_id, sent)


async def send_batch_async(tasks: Tasks, client: AsyncClient, calls: Sequence[Call]) -> SentBatch:
    """Send a batch from async code; the twin of `send_batch`."""
    *parts, then = calls
    async with client.transaction() as within:
        sent = await send_async(tasks, within, parts)
        batch_id = await within.batches.create(
            then.queue, then.body, ids_by_queue(sent), headers=then.headers, group=then.group
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
        self._encryption: Encryption | None = None
        self._is_read = False
        self._lock = threading.Lock()
        self._client: Client | None = None
        self._process = 0
        self._async_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncClient] = WeakKeyDictionary()

    def address(self) -> str:
        """Return the DSN of the tasks, else the one that a client uses: SPANMQ_DSN or the embedded server."""
        return (self.dsn() if callable(self.dsn) else self.dsn) or default_dsn()

    def encryption(self) -> Encryption | None:
        """Return the encryption that the environment asks for, as a worker does."""
        if not self._is_read:
            self._encryption, self._is_read = Encryption.from_environment(), True
        return self._encryption

    def client(self) -> Client:
        """Return the client of this process."""
        with self._lock:
            if self._client is None or self._process != os.getpid():
                self._client = Client(self.address(), encryption=self.encryption(), **self._options)
                self._process = os.getpid()
            return self._client

    def async_client(self) -> AsyncClient:
        """Return the client of this event loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._async_clients:
            self._async_clients[loop] = AsyncClient(
                self.address(), encryption=self.encryption(), **self._options
            )
        return self._async_clients[loop]

    def of(self, connection: Any = None, session: Any = None) -> Client:
        """Return a client for the caller's transaction, else that of the process."""
        within = given(connection, session)
        if within is None and self._place is not None:
            within = self._place()
        if within is None:
            return self.client()
        return Client(connection=within, encryption=self.encryption())

    def of_async(self, connection: Any = None, session: Any = None) -> AsyncClient:
        """Return a client for the caller's transaction, else that of the loop."""
        within = given(connection, session)
        if within is None:
            return self.async_client()
        return AsyncClient(connection=within, encryption=self.encryption())

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
