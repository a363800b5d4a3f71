"""Records the calls on one queue of all clients of a process: a worker's, a task's, or a program's own.

It stands between the clients and their connections. Calls in a transaction of a client have happened when that has
committed.
"""

import json
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from lab.bench.history.calls import Pending, Recorder
from lab.bench.history.streams import CLAIM, RANGES, Claim, Ranges, Streams
from psycopg.pq import TransactionStatus

from spanmq.client._async.connection import AsyncConnectionLink, AsyncPoolLink
from spanmq.client._sync.connection import ConnectionLink, PoolLink
from spanmq.client.call import SqlCall

Values = Mapping[str, Any]
ELEMENT = re.compile(r'"(?:[^"\\]|\\.)*"|NULL')
# One range of a multirange of ids.
RANGE = re.compile(r"\[(\d+),(\d+)\)")


@dataclass(frozen=True, slots=True)
class Verb:
    """How a function is recorded: its verb, what its arguments say, and what its result does."""

    name: str
    arguments: Callable[[Values], dict[str, Any]]
    answer: Callable[[Any], Any]


def _groups(values: Values) -> dict[str, Any]:
    """Return the groups of the messages of a send, one or many."""
    many = values.get("msgs") or values.get("messages")
    count = 1 if many is None else len(ELEMENT.findall(many))
    headers: list[str | None] = [values.get("headers")]
    if many is not None:
        texts = ELEMENT.findall(values["headers"]) if values.get("headers") else ["NULL"] * count
        # An element of an array is written as a string of JSON is.
        headers = [None if text == "NULL" else json.loads(text) for text in texts]
    return {"groups": [json.loads(header).get("x-pgmq-group") if header else None for header in headers]}


def _ids(values: Values) -> dict[str, Any]:
    return {"ids": [int(message_id) for message_id in values["msg_ids"].strip("{}").split(",") if message_id]}


def _of_lease(values: Values) -> dict[str, Any]:
    return {**_ids(values), "lease": int(values["lease_id"])}


def _exported(values: Values) -> dict[str, Any]:
    ranges = RANGE.findall(values["ids"])
    return {"ids": [message_id for low, high in ranges for message_id in range(int(low), int(high))]}


def _outcomes(outcome: str) -> Callable[[Any], list[int]]:
    return lambda settled: [message.message_id for message in settled if message.outcome == outcome]


def _delivered(messages: Any) -> list[tuple[int, int | None]]:
    return [(message.message_id, message.lease_id) for message in messages]


def _seconds(name: str) -> Callable[[Values], dict[str, Any]]:
    # Without a lease of its own it is the policy's, of which nothing is known here.
    return lambda values: {"seconds": float(values.get(name) or 0)}


def _sent_many(ids: Any) -> list[int]:
    return list(ids)


ACK = Verb("settle", _of_lease, _outcomes("acked"))
REJECT = Verb(
    "settle",
    lambda values: {**_of_lease(values), "into": "dead", "error": values.get("error")},
    _outcomes("dead"),
)
EXTEND = Verb(
    "extend", lambda values: {**_of_lease(values), **_seconds("seconds")(values)}, _outcomes("extended")
)
# What a function may do, by its name.
VERBS: Mapping[str, tuple[Verb, ...]] = {
    "send": (Verb("send", _groups, lambda message_id: [message_id]),),
    "send_batch": (Verb("send", _groups, _sent_many),),
    "send_messages": (Verb("send", _groups, _sent_many),),
    "receive": (Verb("receive", _seconds("lease"), _delivered),),
    "read": (Verb("receive", _seconds("vt"), _delivered),),
    "pop": (Verb("take", lambda _: {}, lambda messages: [message.message_id for message in messages]),),
    "ack": (ACK,),
    "ack_with_results": (ACK,),
    "reject": (REJECT,),
    "nack": (Verb("free", _of_lease, _outcomes("retrying")), REJECT),
    "release": (Verb("free", _of_lease, _outcomes("released")),),
    "delete": (Verb("settle", _ids, _sent_many),),
    "archive": (Verb("settle", lambda values: {**_ids(values), "into": "archived"}, _sent_many),),
    "set_vt": (Verb("free", _ids, lambda messages: [message.message_id for message in messages]),),
    "extend": (EXTEND,),
    "note_export": (Verb("export", _exported, lambda _: None),),
    "metrics": (Verb("count", lambda _: {}, lambda metrics: metrics.length),),
}


@dataclass(frozen=True, slots=True)
class Begun:
    """A call under way, as what it may do."""

    parts: list[tuple[Verb, Pending]]

    def raised(self, error: BaseException) -> None:
        """Write that the call had no effect, if its error says so."""
        for _, pending in self.parts:
            pending.raised(error)


class Recording:
    """What a process records of a queue; with `database`, only of connections to that."""

    def __init__(self, recorder: Recorder, queue: str, database: str | None = None) -> None:
        self._recorder = recorder
        self._queue = queue
        self._database = database
        self._streams = Streams(recorder)
        # Calls of transactions that have not ended, by link.
        self._open: dict[object, list[Pending]] = {}

    def begin(self, link: object, call: SqlCall[Any]) -> Begun | Claim | Ranges:
        """Write the beginning of a call; nothing for one that is not recorded."""
        values = {argument.name: argument.value for argument in call.arguments}
        is_ours = call.queue == self._queue and self._database in (None, _database(link))
        if is_ours and call.function in (CLAIM, RANGES):
            return self._streams.begin(call.function, values)
        verbs = VERBS.get(call.function, ()) if is_ours else ()
        # One that was sent before has that one's id.
        if "dedup_ids" in values or "fingerprint" in values:
            verbs = ()
        parts = [(verb, self._recorder.call(verb.name, **verb.arguments(values))) for verb in verbs]
        return Begun(parts)

    def end(self, link: object, begun: Begun | Claim | Ranges, result: Any) -> None:
        """Write the answer of a call, or keep it until its transaction ends."""
        if not isinstance(begun, Begun):
            begun.end(result)
            return
        for verb, pending in begun.parts:
            pending.got = verb.answer(result)
            if isinstance(link, PoolLink | AsyncPoolLink):
                pending.end()
            elif link in self._open:
                self._open[link].append(pending)
            elif isinstance(link, ConnectionLink | AsyncConnectionLink) and _is_committed(link):
                pending.end()

    @contextmanager
    def transaction(self, link: object) -> Iterator[list[Pending]]:
        """Have the calls of a link in a block happen with it, or not at all; yield them, to be ended after the commit.

        In a block within another one, they happen with that one.
        """
        outer = self._open.get(link)
        calls = self._open[link] = []
        try:
            yield calls
        except BaseException:
            for pending in calls:
                pending.fail()
            raise
        else:
            if outer is not None:
                outer += calls
        finally:
            del self._open[link]
            if outer is not None:
                self._open[link] = outer


def _database(link: object) -> str | None:
    return (
        str(link.connection.info.dbname) if isinstance(link, ConnectionLink | AsyncConnectionLink) else None
    )


def _is_committed(link: ConnectionLink | AsyncConnectionLink) -> bool:
    """Return whether a call was a transaction of its own."""
    return bool(link.connection.info.transaction_status == TransactionStatus.IDLE)


def _begins(link: Any) -> bool:
    """Return whether a block of this link is a transaction, not a savepoint in one of the caller's."""
    if isinstance(link, PoolLink | AsyncPoolLink):
        return True
    return bool(link.connection.autocommit and _is_committed(link))


def _run(recording: Recording, run: Any) -> Any:
    def recorded(link: Any, call: SqlCall[Any], **options: Any) -> Any:
        begun = recording.begin(link, call)
        try:
            result = run(link, call, **options)
        except BaseException as error:
            begun.raised(error)
            raise
        recording.end(link, begun, result)
        return result

    return recorded


def _run_async(recording: Recording, run: Any) -> Any:
    async def recorded(link: Any, call: SqlCall[Any], **options: Any) -> Any:
        begun = recording.begin(link, call)
        try:
            result = await run(link, call, **options)
        except BaseException as error:
            begun.raised(error)
            raise
        recording.end(link, begun, result)
        return result

    return recorded


def _transaction(recording: Recording, begin: Any) -> Any:
    @contextmanager
    def recorded(link: Any) -> Iterator[Any]:
        begins = _begins(link)
        with begin(link) as within, recording.transaction(within) as calls:
            yield within
        for pending in calls if begins else ():
            pending.end()

    return recorded


def _transaction_async(recording: Recording, begin: Any) -> Any:
    @asynccontextmanager
    async def recorded(link: Any) -> AsyncIterator[Any]:
        begins = _begins(link)
        async with begin(link) as within:
            with recording.transaction(within) as calls:
                yield within
        for pending in calls if begins else ():
            pending.end()

    return recorded


@contextmanager
def recording(folder: Path, client: str, queue: str, database: str | None = None) -> Iterator[None]:
    """Record the calls on a queue of all clients of this process, during a block, as those of one client.

    With the name of a `database`: only those of clients with one connection, to that.
    """
    with Recorder(folder, client) as recorder, ExitStack() as stack:
        own = Recording(recorder, queue, database)
        for link in (PoolLink, ConnectionLink):
            stack.enter_context(patch.object(link, "run", _run(own, link.run)))
            stack.enter_context(patch.object(link, "transaction", _transaction(own, link.transaction)))
        for async_link in (AsyncPoolLink, AsyncConnectionLink):
            stack.enter_context(patch.object(async_link, "run", _run_async(own, async_link.run)))
            begin = _transaction_async(own, async_link.transaction)
            stack.enter_context(patch.object(async_link, "transaction", begin))
        yield
