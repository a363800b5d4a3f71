"""Sends of calls of tasks: one batch for all calls with the same options."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any, Generic, TypeVar, Unpack, cast

from spanmq.client import AsyncClient, Client
from spanmq.client.argument import Seconds
from spanmq.codec.body import ValidJson
from spanmq.codec.encryption import Unopened
from spanmq.errors import InvalidArgumentError, SpanmqError, TaskFailedError
from spanmq.model import Failure, Message
from spanmq.tasks.call import Call, Place
from spanmq.tasks.clients import Clients
from spanmq.tasks.results import check_batch, header_of
from spanmq.tasks.shapes import Key, Note, ShapeNotes, key_of
from spanmq.tasks.signals import Wait

Result_co = TypeVar("Result_co", covariant=True)
Sends = Callable[[Iterable[Call]], Any]
SendMiddleware = Callable[[list[Call], Sends], Any]


class OutgoingBatch:
    """Calls with the same options, one `send_batch` for all."""

    def __init__(self, first: Call) -> None:
        self.queue = first.queue
        self._options = {"delay": first.delay, "priority": first.priority, "expires_in": first.expires_in}
        self._unique = unique_of(first)
        self._bodies: list[str] = []
        self._headers: list[Mapping[str, Any]] = []
        self._groups: list[str | None] = []
        self._dedup_ids: list[str] = []
        self.places: list[int] = []
        # A body of each shape.
        self.shapes: dict[Key, str] = {}

    def add(self, place: int, call: Call) -> None:
        """Add what is sent of a call, not the call: garbage collection counts objects that live long."""
        self.places.append(place)
        self._bodies.append(call.body)
        self._headers.append(call.headers)
        self._groups.append(call.group)
        self.shapes.setdefault(key_of(call), call.body)
        if self._unique:
            self._dedup_ids.append(f"{call.task}:{call.unique}")

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `send_batch`."""
        bodies = map(ValidJson, self._bodies)
        arguments: dict[str, Any] = {"queue": self.queue, "bodies": bodies, **self._options}
        if any(self._headers):
            arguments["headers"] = self._headers
        if any(group is not None for group in self._groups):
            arguments["group"] = self._groups
        if self._unique:
            arguments |= {"dedup_ids": self._dedup_ids, **dict(self._unique)}
        return arguments


def unique_of(call: Call) -> tuple[tuple[str, Any], ...]:
    """Return how a unique call is deduplicated, as arguments of `send_batch`; empty for another one."""
    if call.unique is None:
        return ()
    until = (
        ("dedup_for", call.unique_for) if call.unique_until is None else ("dedup_until", call.unique_until)
    )
    return until, ("on_duplicate", call.on_duplicate)


def batches(calls: Iterable[Call]) -> list[OutgoingBatch]:
    """Divide calls into batches, to be sent one after the other: as few as keep the order within each group."""
    divided: list[OutgoingBatch] = []
    # Places in `divided`: the last batch with these options, and the last one with a call of this group.
    place_of: dict[Any, int] = {}
    place_of_group: dict[tuple[str, str], int] = {}
    for number, call in enumerate(calls):
        if not isinstance(call, Call):
            raise InvalidArgumentError(
                f"send_many takes calls, got {call!r}", hint="ship.call(order) makes one."
            )
        options = (call.queue, call.delay, call.priority, call.expires_in, unique_of(call))
        place = place_of.get(options)
        if place is None or (
            call.group is not None and place < place_of_group.get((call.queue, call.group), 0)
        ):
            place = place_of[options] = len(divided)
            divided.append(OutgoingBatch(call))
        if call.group is not None:
            place_of_group[call.queue, call.group] = place
        divided[place].add(number, call)
    return divided


@dataclass(frozen=True, slots=True)
class Sent(Generic[Result_co]):
    """A message that was sent, or the earlier one that a unique task found: its `queue` and its `message_id`.

    `clients` are those that wait for it, `read` the function that makes of its result what the task returned, if the
    task stores what it returns.
    """

    queue: str
    message_id: int
    clients: Clients | None = field(default=None, repr=False, compare=False)
    # Makes of a stored result, which is JSON, what the task returned.
    read: Callable[[Any], Result_co] | None = field(default=None, repr=False, compare=False)

    def wait(self, timeout: Seconds | None = None) -> Result_co:
        """Wait until the message is settled; return the result, if the task has `store_result`, else None.

        The result is of the type that the task's signature says; that of a message of `send_many` is as JSON has it,
        None without a result. `timeout` is in seconds; None: without a limit. Raises TimeoutError, TaskFailedError if
        the message is a dead letter or left no result, ResultNotStoredError if the task is done and its result could
        not be stored, or InvalidArgumentError if the result does not fit its type. Commit the send before you wait.
        """
        client = self._clients.client()
        if client.results.wait(self.queue, self.message_id, seconds=timeout):
            raise TimeoutError(f"{self} was not settled in time")
        if client.inspect.state(self.queue, self.message_id) == "dead":
            raise self._failed(client.inspect.failures(self.queue, self.message_id))
        return self._result(client.results.get(self.queue, self.message_id))

    async def wait_async(self, timeout: Seconds | None = None) -> Result_co:  # noqa: ASYNC109, as `wait`
        """Wait from async code, at most `timeout` seconds; the twin of `wait`. It returns and raises the same."""
        client = await self._clients.async_client()
        if await client.results.wait(self.queue, self.message_id, seconds=timeout):
            raise TimeoutError(f"{self} was not settled in time")
        if await client.inspect.state(self.queue, self.message_id) == "dead":
            raise self._failed(await client.inspect.failures(self.queue, self.message_id))
        return self._result(await client.results.get(self.queue, self.message_id))

    def with_reader(self, read: Callable[[Any], Any]) -> Sent[Any]:
        """Return the same message, whose result is read by `read`."""
        return Sent(self.queue, self.message_id, self.clients, read)

    def _result(self, results: Mapping[int, Any]) -> Result_co:
        value: Any = results.get(self.message_id)
        if isinstance(value, Unopened):
            raise value.error
        if self.read is None:
            # A message of `send_many`, a Sent[Any], or of a task that stores nothing, a Sent[object].
            return cast("Result_co", value)
        if self.message_id not in results:
            raise TaskFailedError(
                f"{self} left no result: it was cancelled or deleted, its task returned a call, or the result expired",
                queue=self.queue,
            )
        return self.read(value)

    @property
    def _clients(self) -> Clients:
        if self.clients is None:
            raise InvalidArgumentError(f"{self} was not sent by a task, so it has no result")
        return self.clients

    def _failed(self, failures: Sequence[Failure]) -> TaskFailedError:
        reason = failures[-1].error if failures else None
        return TaskFailedError(f"{self} is a dead letter: {reason}", queue=self.queue)


@dataclass(frozen=True, slots=True)
class SentBatch:
    """A batch that was sent: its `batch_id`, and its `messages` in the order of the calls."""

    batch_id: int
    messages: list[Sent[Any]]


@dataclass(frozen=True, slots=True)
class BatchCall:
    """Calls, and the call `then`, sent when the messages of `calls` are settled; also as the result of a task.

    `sender` sends them: `Tasks.batch` makes one.
    """

    calls: tuple[Call, ...]
    then: Call
    sender: Sender = field(repr=False)

    def send(self, **place: Unpack[Place]) -> SentBatch:
        """Send it, all or nothing; return the batch and its messages.

        `place` is a `connection` or a `session`, in whose transaction it is sent. Raises what `Client.send_batch`
        raises.
        """
        return self.sender.send_batch(self.sender.clients.of(**place), self)

    async def send_async(self, **place: Unpack[Place]) -> SentBatch:
        """Send it from async code, in the transaction of a `place`; the twin of `send`. It raises the same."""
        return await self.sender.send_batch_async(await self.sender.clients.of_async(**place), self)


class Sender:
    """Sends calls through a client, all or none, within the middleware."""

    def __init__(self, clients: Clients) -> None:
        self.clients = clients
        self.middleware: list[SendMiddleware] = []
        self._notes = ShapeNotes()

    def around(self, sends: Sends) -> Sends:
        """Return a function that sends, within the middleware."""
        return reduce(
            lambda call_next, middleware: lambda calls: middleware([*calls], call_next),
            reversed(self.middleware),
            sends,
        )

    def send(self, client: Client, calls: Iterable[Call]) -> list[Sent[Any]]:
        """Send calls."""
        sent: list[Sent[Any]] = self.around(partial(self._send, client))(calls)
        return sent

    async def send_async(self, client: AsyncClient, calls: Iterable[Call]) -> list[Sent[Any]]:
        """Send calls from async code; the twin of `send`."""
        sent: list[Sent[Any]] = await self.around(partial(self._send_async, client))(calls)
        return sent

    def send_batch(self, client: Client, batch: BatchCall) -> SentBatch:
        """Send a batch."""
        sent: SentBatch = self.around(partial(self._send_batch, client))([*batch.calls, batch.then])
        return sent

    async def send_batch_async(self, client: AsyncClient, batch: BatchCall) -> SentBatch:
        """Send a batch from async code; the twin of `send_batch`."""
        sends = self.around(partial(self._send_batch_async, client))
        sent: SentBatch = await sends([*batch.calls, batch.then])
        return sent

    def wait(self, client: Client, wait: Wait, waiter: Message) -> None:
        """Have the call of a wait, which the task of a message returned, sent when its signal comes."""
        self.around(lambda calls: [client.signals.park(**parked(wait, waiter, calls))])([wait.then])

    async def wait_async(self, client: AsyncClient, wait: Wait, waiter: Message) -> None:
        """Have the call of a wait sent when its signal comes, from async code; the twin of `wait`."""
        await self.around(partial(_park, client, wait, waiter))([wait.then])

    def _send(self, client: Client, calls: Iterable[Call]) -> list[Sent[Any]]:
        divided = batches(calls)
        self._note(client, divided)
        with client.transaction() if len(divided) > 1 else nullcontext(client) as within:
            return self._sent(divided, [within.send_batch(**batch.arguments()) for batch in divided])

    async def _send_async(self, client: AsyncClient, calls: Iterable[Call]) -> list[Sent[Any]]:
        divided = batches(calls)
        await self._note_async(client, divided)
        async with client.transaction() if len(divided) > 1 else nullcontext(client) as within:
            return self._sent(divided, [await within.send_batch(**batch.arguments()) for batch in divided])

    def _due(self, divided: Iterable[OutgoingBatch]) -> Iterable[Note]:
        # The names of arguments are not written for a program that encrypts its bodies.
        if self.clients.encryption is not None:
            return ()
        return self._notes.due(shape for batch in divided for shape in batch.shapes.items())

    def _note(self, client: Client, divided: Iterable[OutgoingBatch]) -> None:
        """Note the shapes of what is sent that are due; a send does not fail because of it."""
        for note in self._due(divided):
            with suppress(SpanmqError):
                # In a transaction of the caller's a savepoint, which an error does not leave.
                with client.transaction() as within:
                    seconds = within.admin.run(note.call)
                self._notes.hold(note.keys, seconds)

    async def _note_async(self, client: AsyncClient, divided: Iterable[OutgoingBatch]) -> None:
        for note in self._due(divided):
            with suppress(SpanmqError):
                async with client.transaction() as within:
                    seconds = await within.admin.run(note.call)
                self._notes.hold(note.keys, seconds)

    def _send_batch(self, client: Client, calls: Iterable[Call]) -> SentBatch:
        *parts, then = calls
        check_batch(parts, then)
        with client.transaction() as within:
            sent = self._send(within, parts)
            return SentBatch(within.batches.create(**end_of(then, sent)), sent)

    async def _send_batch_async(self, client: AsyncClient, calls: Iterable[Call]) -> SentBatch:
        *parts, then = calls
        check_batch(parts, then)
        async with client.transaction() as within:
            sent = await self._send_async(within, parts)
            return SentBatch(await within.batches.create(**end_of(then, sent)), sent)

    def _sent(self, divided: Sequence[OutgoingBatch], ids: Sequence[list[int]]) -> list[Sent[Any]]:
        """Return what was sent, in the order of the calls."""
        sent: dict[int, Sent[Any]] = {
            place: Sent(batch.queue, message_id, self.clients)
            for batch, message_ids in zip(divided, ids, strict=True)
            for place, message_id in zip(batch.places, message_ids, strict=True)
        }
        return [sent[place] for place in range(len(sent))]


async def _park(client: AsyncClient, wait: Wait, waiter: Message, calls: Iterable[Call]) -> list[int | None]:
    return [await client.signals.park(**parked(wait, waiter, calls))]


def parked(wait: Wait, waiter: Message, calls: Iterable[Call]) -> dict[str, Any]:
    """Return the arguments of `signals.park` for a wait, whose call the middleware may have changed."""
    [then] = calls
    return {
        "queue": then.queue,
        "name": wait.name,
        "body": ValidJson(then.body),
        "wait_for": wait.timeout,
        "headers": then.headers,
        "group": then.group,
        # Without an id it is a test's.
        "waiter": waiter if waiter.message_id else None,
    }


def end_of(then: Call, sent: Sequence[Sent[Any]]) -> dict[str, Any]:
    """Return the arguments of `batches.create` for the call that ends a batch of these messages."""
    ids: dict[str, list[int]] = {}
    for message in sent:
        ids.setdefault(message.queue, []).append(message.message_id)
    called = header_of((message.queue, message.message_id) for message in sent) if then.takes_results else {}
    return {
        "queue": then.queue,
        "body": ValidJson(then.body),
        "messages": ids,
        "headers": {**then.headers, **called},
        "group": then.group,
    }
