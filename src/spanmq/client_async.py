"""The asynchronous client: one method for each SQL function, and nothing that the database could do.

What goes beyond PGMQ's interface stands in classes of its own, a noun each, and the client is made of them.
tools/generate_sync.py generates the synchronous modules from the asynchronous ones, whose names end in async.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from time import monotonic
from types import TracebackType
from typing import Any, Self

import psycopg
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from spanmq import calls, link_async, schema, tracing
from spanmq.access_keys_async import AsyncAccessKeys
from spanmq.batches_async import AsyncBatches
from spanmq.body import Codec, Decoder, Encoder
from spanmq.call import Call, Delay, Seconds, duration
from spanmq.concurrency import in_thread
from spanmq.dead_letters_async import AsyncDeadLetters
from spanmq.deliveries_async import AsyncDeliveries
from spanmq.delivery_calls import by_lease
from spanmq.encryption import Encryption, Unopened
from spanmq.footing import check_footing, check_options
from spanmq.grants_async import AsyncGrants
from spanmq.health_async import AsyncHealth
from spanmq.insides_async import AsyncInsides
from spanmq.link_async import AsyncConnectionLink, AsyncLink, AsyncPoolLink, try_again
from spanmq.listen_async import AsyncAnnouncement, AsyncListener, receive_until
from spanmq.maintenance_async import AsyncMaintenance
from spanmq.message import (
    Flavour,
    MaintenanceStep,
    Message,
    NotifyThrottle,
    Queue,
    QueueMetrics,
    QueueStorage,
    Settled,
    TopicBinding,
)
from spanmq.outbox import adapt_async
from spanmq.pipeline_runs_async import AsyncPipelineRuns
from spanmq.policies_async import AsyncCategories, AsyncPolicies
from spanmq.receivers_async import AsyncReceivers, AsyncSubscriptions
from spanmq.schedules_async import AsyncSchedules, plan_schedules
from spanmq.schema import Installed
from spanmq.sending_async import AsyncSending
from spanmq.settled_async import AsyncSettlements, settle_listener_async
from spanmq.shard_maps_async import AsyncShardMaps
from spanmq.sqs_moves_async import AsyncSqsMoves
from spanmq.timeouts import DEFAULT, Timeouts, with_timeouts
from spanmq.tokens_async import AsyncSessions, AsyncTokens

logger = logging.getLogger("spanmq")


class AsyncClient(
    AsyncSending,
    AsyncSchedules,
    AsyncBatches,
    AsyncSettlements,
    AsyncDeliveries,
    AsyncPolicies,
    AsyncCategories,
    AsyncDeadLetters,
    AsyncReceivers,
    AsyncHealth,
    AsyncInsides,
    AsyncGrants,
    AsyncShardMaps,
    AsyncSubscriptions,
    AsyncPipelineRuns,
    AsyncTokens,
    AsyncSessions,
    AsyncAccessKeys,
    AsyncSqsMoves,
):
    """Send and receive messages.

    Give it one of three things. A `dsn`: it keeps a pool of up to `pool_size` connections, which reconnects
    by itself, waits at most `timeout` seconds for one of them, and calls `maintain` in the background about
    every `maintain_interval` seconds (None: never). A `pool` of psycopg_pool: it only borrows. A `connection`
    of yours, psycopg's or a session of other software (see spanmq.outbox): every call joins the transaction
    that is open there, and nothing is ever committed.

    Over a pool each call is a transaction of its own. A `receive` there does not wait for the disk, since a
    claim that a crash forgets is only made again, unless `durable_claims`. Waiting uses LISTEN on one more
    connection, unless `listen` is False, and polls at growing intervals up to `poll_interval` seconds.
    `pooler` says that the DSN leads to a pooler in transaction mode, such as PgBouncer: then no statement is
    prepared, no time limits are passed, and waiting polls only. `timeouts` are the time limits of the pool's
    sessions, where the DSN names no others; None passes none. `on_connect` is called with each new connection
    of the client's own pool, in autocommit, before anybody gets it. With an `encryption` bodies are sealed
    and opened.
    """

    def __init__(
        self,
        dsn: str | None = None,
        *,
        pool: AsyncConnectionPool[Any] | None = None,
        connection: object | None = None,
        encoder: Encoder | None = None,
        decoder: Decoder | None = None,
        encryption: Encryption | None = None,
        pool_size: int = 10,
        timeout: float = 30.0,
        maintain_interval: float | None = 1.0,
        durable_claims: bool = False,
        listen: bool = True,
        poll_interval: float = 0.5,
        pooler: bool = False,
        timeouts: Timeouts | None = DEFAULT,
        on_connect: Callable[[AsyncConnection[Any]], Any] | None = None,
    ) -> None:
        check_footing(dsn, pool, connection, AsyncConnectionPool)
        check_options(
            pool_size=pool_size,
            timeout=timeout,
            maintain_interval=maintain_interval,
            poll_interval=poll_interval,
            encoder=encoder,
            decoder=decoder,
            timeouts=timeouts,
        )
        self._codec = Codec(encoder, decoder, encryption)
        self._poll_interval = poll_interval
        self._maintain_interval = maintain_interval
        self._maintenance: AsyncMaintenance | None = None
        self._listener: AsyncListener | None = None
        self._pool_link: AsyncPoolLink | None = None
        if dsn is not None:
            pool = AsyncConnectionPool(
                dsn if pooler or timeouts is None else with_timeouts(dsn, timeouts),
                min_size=1,
                max_size=pool_size,
                kwargs={
                    "autocommit": True,
                    # JSON is: a database, or PGCLIENTENCODING, may say otherwise.
                    "client_encoding": "utf8",
                    **({"prepare_threshold": None} if pooler else {}),
                },
                configure=on_connect,
                reconnect_timeout=link_async.RECONNECT_SECONDS,
                reconnect_failed=try_again,
                open=False,
                name="spanmq",
            )
        self._link: AsyncLink
        if pool is not None:
            self._pool_link = AsyncPoolLink(pool, dsn=dsn, timeout=timeout, durable=durable_claims)
            self._pool_link.on_open = self._begin_maintenance
            # A pool of one has none to spare.
            if listen and not pooler and (dsn is not None or pool.max_size > 1):
                self._listener = AsyncListener(self._pool_link.dedicated)
                self._settle_listener = settle_listener_async(self._pool_link)
            self._link = self._pool_link
        elif isinstance(connection, AsyncConnectionLink):
            self._link = connection
        elif isinstance(connection, AsyncConnection):
            self._link = AsyncConnectionLink(connection)
        else:
            self._link = adapt_async(connection)

    # The client itself.

    async def open(self) -> Self:
        """Connect now, and not at the first call; raises ConnectionFailedError if no server answers."""
        if self._pool_link is not None:
            await self._pool_link.open()
        return self

    async def close(self) -> None:
        """Stop what runs in the background and close the pool, if it is the client's own."""
        jobs = [job for job in (self._maintenance, self._listener, self._settle_listener) if job]
        for job in jobs:
            job.stop()
        if self._pool_link is not None:
            await self._pool_link.close()
        for job in jobs:
            await job.join()

    async def __aenter__(self) -> Self:
        """Connect."""
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()

    @property
    def connection(self) -> Any:
        """The connection or session of a client that has one, for your own statements in its transaction."""
        return self._link.connection

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncClient]:
        """Give a client whose calls all take effect at the end of the block, or not at all if it raises.

        On a connection of yours it is a savepoint, or, in autocommit mode, a transaction.
        """
        async with self._link.transaction() as link:
            yield AsyncClient(
                connection=link,
                encoder=self._codec.encoder,
                decoder=self._codec.decoder,
                encryption=self._codec.encryption,
                poll_interval=self._poll_interval,
            )

    async def install(self) -> Installed:
        """Install the schema, or bring it to this release, over a connection of its own, and commit.

        Does nothing where all is in place, and may run any number of times at once.
        """
        address = await self._link.address()
        return await in_thread(partial(install_at, address))

    async def flavour(self) -> Flavour:
        """Look at what the database holds: "spanmq", "upstream" (PGMQ) or "none"."""
        return await self._link.flavour()

    async def version(self) -> str:
        """Give the version of the schema."""
        return await self._link.run(calls.version())

    async def maintain(self, budget: int = 10) -> list[MaintenanceStep]:
        """Do one bounded step of housekeeping; call it until it gives []."""
        steps = await self._link.run(calls.maintain(budget))
        if not steps:
            await plan_schedules(self._link)
        return steps

    # Queues.

    async def create_queue(
        self,
        name: str,
        *,
        unlogged: bool = False,
        partition_interval: int | str | None = None,
        retention_interval: int | str | None = None,
    ) -> None:
        """Create a queue; does nothing if it exists.

        An unlogged one is faster; a crash of the server loses its messages. The intervals (a count of
        messages or a time, such as "1 day") make it PGMQ's partitioned kind.
        """
        intervals = partition_interval, retention_interval
        await self._link.run(calls.create_queue(name, unlogged, *intervals))

    async def drop_queue(self, queue: str) -> bool:
        """Drop a queue with its messages and its archive; tell whether it existed."""
        return await self._link.run(calls.drop_queue(queue))

    async def purge(self, queue: str) -> int:
        """Remove all messages of a queue; give their number."""
        return await self._link.run(calls.purge(queue))

    async def list_queues(self) -> list[Queue]:
        """List the queues."""
        return await self._link.run(calls.list_queues())

    async def metrics(self, queue: str) -> QueueMetrics:
        """Count one queue."""
        return await self._link.run(calls.metrics(queue))

    async def metrics_all(self) -> list[QueueMetrics]:
        """Count every queue."""
        return await self._link.run(calls.metrics_all())

    async def storage(self, queue: str) -> QueueStorage:
        """Measure what one queue takes on disk."""
        return await self._link.run(calls.storage(queue))

    # Taking. What takes a `wait` waits at most so long for the first message, on this side of the wire.

    async def receive(
        self,
        queue: str,
        quantity: int = 1,
        *,
        lease: Seconds | None = None,
        slots: int = 1,
        wait: Seconds | None = None,
    ) -> list[Message]:
        """Lease up to `quantity` messages, oldest first; without `wait` it may give [] at once.

        The lease lasts as long as the queue's policy says (30 seconds), unless `lease` says how many seconds.
        Ack each before `leased_until`, or it is delivered again with `attempt` one higher. A slot is what one
        transaction settles: a handler that acks the lot takes one, fifty concurrent handlers take fifty.
        """
        messages = await self._take(calls.receive(self._codec.of(queue), queue, quantity, lease, slots), wait)
        if any(type(message.body) is Unopened for message in messages):
            return await self._opened(messages)
        return messages

    async def peek(
        self, queue: str, quantity: int = 10, *, after: int = 0, body_bytes_max: int | None = None
    ) -> list[Message]:
        """Look at messages with ids above `after`, in order, without taking them.

        Of a body or headers that take more than `body_bytes_max` bytes comes `{"spanmq.cut": bytes}`.
        """
        return await self._link.run(calls.peek(self._codec.of(queue), queue, quantity, after, body_bytes_max))

    async def peek_archive(
        self, queue: str, quantity: int = 10, *, after: int = 0, body_bytes_max: int | None = None
    ) -> list[Message]:
        """Look at archived messages with ids above `after`, in order."""
        return await self._link.run(
            calls.peek_archive(self._codec.of(queue), queue, quantity, after, body_bytes_max)
        )

    async def read(
        self,
        queue: str,
        quantity: int = 1,
        *,
        lease: Seconds = 30,
        conditional: Mapping[str, Any] | None = None,
        wait: Seconds | None = None,
    ) -> list[Message]:
        """Take messages as PGMQ's `read` does: hidden for `lease` whole seconds.

        Settle them with delete or archive. `conditional` takes only messages whose body contains it.
        """
        wanted = None if conditional is None else self._codec.encode(conditional)
        return await self._take(calls.read(self._codec.of(queue), queue, quantity, lease, wanted), wait)

    async def read_grouped(
        self, queue: str, quantity: int = 1, *, lease: Seconds = 30, wait: Seconds | None = None
    ) -> list[Message]:
        """Take messages in the order of their groups, filling up from the oldest group."""
        call = calls.read_grouped(self._codec.of(queue), "read_grouped", queue, quantity, lease)
        return await self._take(call, wait)

    async def read_grouped_rr(
        self, queue: str, quantity: int = 1, *, lease: Seconds = 30, wait: Seconds | None = None
    ) -> list[Message]:
        """Take messages in the order of their groups, from all groups in turn."""
        call = calls.read_grouped(self._codec.of(queue), "read_grouped_rr", queue, quantity, lease)
        return await self._take(call, wait)

    async def read_grouped_head(
        self, queue: str, quantity: int = 1, *, lease: Seconds = 30, wait: Seconds | None = None
    ) -> list[Message]:
        """Take the first message of each of up to `quantity` groups."""
        call = calls.read_grouped(self._codec.of(queue), "read_grouped_head", queue, quantity, lease)
        return await self._take(call, wait)

    async def pop(self, queue: str, quantity: int = 1) -> list[Message]:
        """Take messages out for good: what the receiver then loses is lost."""
        return await self._take(calls.pop(self._codec.of(queue), queue, quantity), None)

    async def set_vt(self, queue: str, message_ids: int | Iterable[int], delay: Delay) -> list[Message]:
        """Hide messages for a time from now, or until a moment; give those that exist."""
        return await self._link.run(calls.set_vt(self._codec.of(queue), queue, message_ids, delay))

    # Settling.

    async def ack(self, messages: Message | Iterable[Message]) -> list[Settled]:
        """Settle received messages; one that its lease no longer holds is "stale", and left alone."""
        settled = await self._link.run_all(
            calls.ack(queue, lease_id, message_ids)
            for (queue, lease_id), message_ids in by_lease(messages).items()
        )
        return tracing.settled("ack", settled)

    async def ack_lease(self, queue: str, lease_id: int, message_ids: int | Iterable[int]) -> list[Settled]:
        """Settle messages by their ids and the lease that they were received under."""
        return tracing.settled("ack", await self._link.run(calls.ack(queue, lease_id, message_ids)))

    async def cancel(self, queue: str, message_ids: int | Iterable[int]) -> list[Settled]:
        """Take messages back that nobody holds."""
        return await self._link.run(calls.cancel(queue, message_ids))

    async def delete(self, queue: str, message_ids: int | Iterable[int]) -> list[int]:
        """Delete messages, whoever holds them; give the ids of those that existed."""
        return await self._link.run(calls.delete(queue, message_ids))

    async def archive(self, queue: str, message_ids: int | Iterable[int]) -> list[int]:
        """Move messages to the archive, whoever holds them; give the ids of those that existed."""
        return await self._link.run(calls.archive(queue, message_ids))

    # Topics.

    async def bind_topic(self, pattern: str, queue: str) -> None:
        """Let a queue get what is sent to the topics that match; does nothing if it does already."""
        await self._link.run(calls.bind_topic(pattern, queue))

    async def unbind_topic(self, pattern: str, queue: str) -> bool:
        """Undo it; tell whether it was bound."""
        return await self._link.run(calls.unbind_topic(pattern, queue))

    async def list_topic_bindings(self, queue: str | None = None) -> list[TopicBinding]:
        """List the bindings of one queue, or of all."""
        return await self._link.run(calls.list_topic_bindings(queue))

    async def test_routing(self, routing_key: str) -> list[TopicBinding]:
        """List the bindings that a routing key would meet; sends nothing."""
        return await self._link.run(calls.test_routing(routing_key))

    # Announcements of new messages, which end a `wait` early; at most one every `throttle` seconds.

    async def enable_notify_insert(self, queue: str, *, throttle: Seconds = 0.25) -> None:
        """Announce the new messages of a queue."""
        await self._link.run(calls.enable_notify_insert(queue, throttle))

    async def update_notify_insert(self, queue: str, *, throttle: Seconds) -> None:
        """Change how often they are announced."""
        await self._link.run(calls.update_notify_insert(queue, throttle))

    async def disable_notify_insert(self, queue: str) -> None:
        """Announce them no more."""
        await self._link.run(calls.disable_notify_insert(queue))

    async def list_notify_insert_throttles(self) -> list[NotifyThrottle]:
        """List the queues that announce their messages."""
        return await self._link.run(calls.list_notify_insert_throttles())

    async def _take(self, call: Call[list[Message]], wait: Seconds | None) -> list[Message]:
        with tracing.receiving(call.function, call.queue) as receiving:
            return receiving.received(await self._await(call, wait))

    async def _await(self, call: Call[list[Message]], wait: Seconds | None) -> list[Message]:
        if wait is None:
            return await self._link.run(call)
        deadline = monotonic() + duration("wait", wait).total_seconds()
        if (messages := await self._link.run(call)) or call.queue is None:
            return messages
        look = partial(self._link.run, call)
        # PGMQ's own functions are there without ours.
        ahead = partial(look_ahead, self, call.queue) if call.native else None
        if self._listener is None:
            return await receive_until(look, AsyncAnnouncement(), deadline, self._poll_interval, ahead)
        async with self._listener.announcements(call.queue) as announced:
            return await receive_until(look, announced, deadline, self._poll_interval, ahead)

    async def _opened(self, messages: list[Message]) -> list[Message]:
        """Give back what can't be opened or read; raises why not when nothing else came."""
        reasons: dict[tuple[str, str], list[Message]] = {}
        for message in messages:
            if isinstance(message.body, Unopened):
                error = message.body.error
                reasons.setdefault((error.message, type(error).__name__), []).append(message)
                logger.warning(
                    "body_unopened queue=%s message=%s error=%r",
                    message.queue,
                    message.message_id,
                    error.message,
                )
        for (reason, error_class), closed in reasons.items():
            await self.nack(closed, reason, error_class=error_class)
        opened = [message for message in messages if not isinstance(message.body, Unopened)]
        if messages and not opened:
            raise messages[0].body.error
        return opened

    def _begin_maintenance(self) -> None:
        if self._maintain_interval and self._pool_link is not None:
            self._maintenance = AsyncMaintenance(self._pool_link, self._maintain_interval)


def announcements(client: AsyncClient, queue: str) -> AbstractAsyncContextManager[AsyncAnnouncement]:
    """Give, for a block, an event that is set when a message is announced; without `listen` it never is."""
    listener = client._listener
    return nullcontext(AsyncAnnouncement()) if listener is None else listener.announcements(queue)


async def look_ahead(client: AsyncClient, queue: str) -> float | None:
    """Ask in how many seconds something of the queue falls due; None: nothing that is known of.

    For who waits himself: a delay, a backoff or a lease that ends announces nothing.
    """
    return await client._link.run(calls.look_ahead(queue))


async def look_ahead_all(client: AsyncClient, queues: Sequence[str]) -> list[float | None]:
    """Ask that of many queues by one statement; of a queue that is gone nothing is known."""
    return await client._link.run(calls.look_ahead_all(queues))


def install_at(dsn: str) -> Installed:
    """Install the schema over a new connection."""
    with psycopg.connect(dsn, autocommit=True, client_encoding="utf8") as connection:
        return schema.install(connection)
