# Generated from src/spanmq/client_async.py by tools/generate_sync.py: change that file.

"""The synchronous client: one method for each SQL function, and nothing that the database could do.

What goes beyond PGMQ's interface stands in classes of its own, a noun each, and the client is made of them.
tools/generate_sync.py generates the synchronous modules from the asynchronous ones, whose names end in async.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from time import monotonic
from types import TracebackType
from typing import Any, Self

import psycopg
from psycopg import Connection
from psycopg_pool import ConnectionPool

from spanmq import calls, link, schema, tracing
from spanmq.access_keys import AccessKeys
from spanmq.batches import Batches
from spanmq.body import Codec, Decoder, Encoder
from spanmq.call import Call, Delay, Seconds, duration
from spanmq.concurrency import in_place
from spanmq.dead_letters import DeadLetters
from spanmq.deliveries import Deliveries
from spanmq.delivery_calls import by_lease
from spanmq.encryption import Encryption, Unopened
from spanmq.footing import check_footing, check_options
from spanmq.grants import Grants
from spanmq.health import Health
from spanmq.insides import Insides
from spanmq.link import ConnectionLink, Link, PoolLink, try_again
from spanmq.listen import Announcement, Listener, receive_until
from spanmq.maintenance import Maintenance
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
from spanmq.outbox import adapt
from spanmq.pipeline_runs import PipelineRuns
from spanmq.policies import Categories, Policies
from spanmq.receivers import Receivers, Subscriptions
from spanmq.schedules import Schedules, plan_schedules
from spanmq.schema import Installed
from spanmq.sending import Sending
from spanmq.settled import Settlements, settle_listener
from spanmq.shard_maps import ShardMaps
from spanmq.sqs_moves import SqsMoves
from spanmq.timeouts import DEFAULT, Timeouts, with_timeouts
from spanmq.tokens import Sessions, Tokens

logger = logging.getLogger("spanmq")


class Client(
    Sending,
    Schedules,
    Batches,
    Settlements,
    Deliveries,
    Policies,
    Categories,
    DeadLetters,
    Receivers,
    Health,
    Insides,
    Grants,
    ShardMaps,
    Subscriptions,
    PipelineRuns,
    Tokens,
    Sessions,
    AccessKeys,
    SqsMoves,
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
        pool: ConnectionPool[Any] | None = None,
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
        on_connect: Callable[[Connection[Any]], Any] | None = None,
    ) -> None:
        check_footing(dsn, pool, connection, ConnectionPool)
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
        self._maintenance: Maintenance | None = None
        self._listener: Listener | None = None
        self._pool_link: PoolLink | None = None
        if dsn is not None:
            pool = ConnectionPool(
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
                reconnect_timeout=link.RECONNECT_SECONDS,
                reconnect_failed=try_again,
                open=False,
                name="spanmq",
            )
        self._link: Link
        if pool is not None:
            self._pool_link = PoolLink(pool, dsn=dsn, timeout=timeout, durable=durable_claims)
            self._pool_link.on_open = self._begin_maintenance
            # A pool of one has none to spare.
            if listen and not pooler and (dsn is not None or pool.max_size > 1):
                self._listener = Listener(self._pool_link.dedicated)
                self._settle_listener = settle_listener(self._pool_link)
            self._link = self._pool_link
        elif isinstance(connection, ConnectionLink):
            self._link = connection
        elif isinstance(connection, Connection):
            self._link = ConnectionLink(connection)
        else:
            self._link = adapt(connection)

    # The client itself.

    def open(self) -> Self:
        """Connect now, and not at the first call; raises ConnectionFailedError if no server answers."""
        if self._pool_link is not None:
            self._pool_link.open()
        return self

    def close(self) -> None:
        """Stop what runs in the background and close the pool, if it is the client's own."""
        jobs = [job for job in (self._maintenance, self._listener, self._settle_listener) if job]
        for job in jobs:
            job.stop()
        if self._pool_link is not None:
            self._pool_link.close()
        for job in jobs:
            job.join()

    def __enter__(self) -> Self:
        """Connect."""
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    @property
    def connection(self) -> Any:
        """The connection or session of a client that has one, for your own statements in its transaction."""
        return self._link.connection

    @contextmanager
    def transaction(self) -> Iterator[Client]:
        """Give a client whose calls all take effect at the end of the block, or not at all if it raises.

        On a connection of yours it is a savepoint, or, in autocommit mode, a transaction.
        """
        with self._link.transaction() as link:
            yield Client(
                connection=link,
                encoder=self._codec.encoder,
                decoder=self._codec.decoder,
                encryption=self._codec.encryption,
                poll_interval=self._poll_interval,
            )

    def install(self) -> Installed:
        """Install the schema, or bring it to this release, over a connection of its own, and commit.

        Does nothing where all is in place, and may run any number of times at once.
        """
        address = self._link.address()
        return in_place(partial(install_at, address))

    def flavour(self) -> Flavour:
        """Look at what the database holds: "spanmq", "upstream" (PGMQ) or "none"."""
        return self._link.flavour()

    def version(self) -> str:
        """Give the version of the schema."""
        return self._link.run(calls.version())

    def maintain(self, budget: int = 10) -> list[MaintenanceStep]:
        """Do one bounded step of housekeeping; call it until it gives []."""
        steps = self._link.run(calls.maintain(budget))
        if not steps:
            plan_schedules(self._link)
        return steps

    # Queues.

    def create_queue(
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
        self._link.run(calls.create_queue(name, unlogged, *intervals))

    def drop_queue(self, queue: str) -> bool:
        """Drop a queue with its messages and its archive; tell whether it existed."""
        return self._link.run(calls.drop_queue(queue))

    def purge(self, queue: str) -> int:
        """Remove all messages of a queue; give their number."""
        return self._link.run(calls.purge(queue))

    def list_queues(self) -> list[Queue]:
        """List the queues."""
        return self._link.run(calls.list_queues())

    def metrics(self, queue: str) -> QueueMetrics:
        """Count one queue."""
        return self._link.run(calls.metrics(queue))

    def metrics_all(self) -> list[QueueMetrics]:
        """Count every queue."""
        return self._link.run(calls.metrics_all())

    def storage(self, queue: str) -> QueueStorage:
        """Measure what one queue takes on disk."""
        return self._link.run(calls.storage(queue))

    # Taking. What takes a `wait` waits at most so long for the first message, on this side of the wire.

    def receive(
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
        messages = self._take(calls.receive(self._codec.of(queue), queue, quantity, lease, slots), wait)
        if any(type(message.body) is Unopened for message in messages):
            return self._opened(messages)
        return messages

    def peek(
        self, queue: str, quantity: int = 10, *, after: int = 0, body_bytes_max: int | None = None
    ) -> list[Message]:
        """Look at messages with ids above `after`, in order, without taking them.

        Of a body or headers that take more than `body_bytes_max` bytes comes `{"spanmq.cut": bytes}`.
        """
        return self._link.run(calls.peek(self._codec.of(queue), queue, quantity, after, body_bytes_max))

    def peek_archive(
        self, queue: str, quantity: int = 10, *, after: int = 0, body_bytes_max: int | None = None
    ) -> list[Message]:
        """Look at archived messages with ids above `after`, in order."""
        return self._link.run(
            calls.peek_archive(self._codec.of(queue), queue, quantity, after, body_bytes_max)
        )

    def read(
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
        return self._take(calls.read(self._codec.of(queue), queue, quantity, lease, wanted), wait)

    def read_grouped(
        self, queue: str, quantity: int = 1, *, lease: Seconds = 30, wait: Seconds | None = None
    ) -> list[Message]:
        """Take messages in the order of their groups, filling up from the oldest group."""
        call = calls.read_grouped(self._codec.of(queue), "read_grouped", queue, quantity, lease)
        return self._take(call, wait)

    def read_grouped_rr(
        self, queue: str, quantity: int = 1, *, lease: Seconds = 30, wait: Seconds | None = None
    ) -> list[Message]:
        """Take messages in the order of their groups, from all groups in turn."""
        call = calls.read_grouped(self._codec.of(queue), "read_grouped_rr", queue, quantity, lease)
        return self._take(call, wait)

    def read_grouped_head(
        self, queue: str, quantity: int = 1, *, lease: Seconds = 30, wait: Seconds | None = None
    ) -> list[Message]:
        """Take the first message of each of up to `quantity` groups."""
        call = calls.read_grouped(self._codec.of(queue), "read_grouped_head", queue, quantity, lease)
        return self._take(call, wait)

    def pop(self, queue: str, quantity: int = 1) -> list[Message]:
        """Take messages out for good: what the receiver then loses is lost."""
        return self._take(calls.pop(self._codec.of(queue), queue, quantity), None)

    def set_vt(self, queue: str, message_ids: int | Iterable[int], delay: Delay) -> list[Message]:
        """Hide messages for a time from now, or until a moment; give those that exist."""
        return self._link.run(calls.set_vt(self._codec.of(queue), queue, message_ids, delay))

    # Settling.

    def ack(self, messages: Message | Iterable[Message]) -> list[Settled]:
        """Settle received messages; one that its lease no longer holds is "stale", and left alone."""
        settled = self._link.run_all(
            calls.ack(queue, lease_id, message_ids)
            for (queue, lease_id), message_ids in by_lease(messages).items()
        )
        return tracing.settled("ack", settled)

    def ack_lease(self, queue: str, lease_id: int, message_ids: int | Iterable[int]) -> list[Settled]:
        """Settle messages by their ids and the lease that they were received under."""
        return tracing.settled("ack", self._link.run(calls.ack(queue, lease_id, message_ids)))

    def cancel(self, queue: str, message_ids: int | Iterable[int]) -> list[Settled]:
        """Take messages back that nobody holds."""
        return self._link.run(calls.cancel(queue, message_ids))

    def delete(self, queue: str, message_ids: int | Iterable[int]) -> list[int]:
        """Delete messages, whoever holds them; give the ids of those that existed."""
        return self._link.run(calls.delete(queue, message_ids))

    def archive(self, queue: str, message_ids: int | Iterable[int]) -> list[int]:
        """Move messages to the archive, whoever holds them; give the ids of those that existed."""
        return self._link.run(calls.archive(queue, message_ids))

    # Topics.

    def bind_topic(self, pattern: str, queue: str) -> None:
        """Let a queue get what is sent to the topics that match; does nothing if it does already."""
        self._link.run(calls.bind_topic(pattern, queue))

    def unbind_topic(self, pattern: str, queue: str) -> bool:
        """Undo it; tell whether it was bound."""
        return self._link.run(calls.unbind_topic(pattern, queue))

    def list_topic_bindings(self, queue: str | None = None) -> list[TopicBinding]:
        """List the bindings of one queue, or of all."""
        return self._link.run(calls.list_topic_bindings(queue))

    def test_routing(self, routing_key: str) -> list[TopicBinding]:
        """List the bindings that a routing key would meet; sends nothing."""
        return self._link.run(calls.test_routing(routing_key))

    # Announcements of new messages, which end a `wait` early; at most one every `throttle` seconds.

    def enable_notify_insert(self, queue: str, *, throttle: Seconds = 0.25) -> None:
        """Announce the new messages of a queue."""
        self._link.run(calls.enable_notify_insert(queue, throttle))

    def update_notify_insert(self, queue: str, *, throttle: Seconds) -> None:
        """Change how often they are announced."""
        self._link.run(calls.update_notify_insert(queue, throttle))

    def disable_notify_insert(self, queue: str) -> None:
        """Announce them no more."""
        self._link.run(calls.disable_notify_insert(queue))

    def list_notify_insert_throttles(self) -> list[NotifyThrottle]:
        """List the queues that announce their messages."""
        return self._link.run(calls.list_notify_insert_throttles())

    def _take(self, call: Call[list[Message]], wait: Seconds | None) -> list[Message]:
        with tracing.receiving(call.function, call.queue) as receiving:
            return receiving.received(self._await(call, wait))

    def _await(self, call: Call[list[Message]], wait: Seconds | None) -> list[Message]:
        if wait is None:
            return self._link.run(call)
        deadline = monotonic() + duration("wait", wait).total_seconds()
        if (messages := self._link.run(call)) or call.queue is None:
            return messages
        look = partial(self._link.run, call)
        # PGMQ's own functions are there without ours.
        ahead = partial(look_ahead, self, call.queue) if call.native else None
        if self._listener is None:
            return receive_until(look, Announcement(), deadline, self._poll_interval, ahead)
        with self._listener.announcements(call.queue) as announced:
            return receive_until(look, announced, deadline, self._poll_interval, ahead)

    def _opened(self, messages: list[Message]) -> list[Message]:
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
            self.nack(closed, reason, error_class=error_class)
        opened = [message for message in messages if not isinstance(message.body, Unopened)]
        if messages and not opened:
            raise messages[0].body.error
        return opened

    def _begin_maintenance(self) -> None:
        if self._maintain_interval and self._pool_link is not None:
            self._maintenance = Maintenance(self._pool_link, self._maintain_interval)


def announcements(client: Client, queue: str) -> AbstractContextManager[Announcement]:
    """Give, for a block, an event that is set when a message is announced; without `listen` it never is."""
    listener = client._listener
    return nullcontext(Announcement()) if listener is None else listener.announcements(queue)


def look_ahead(client: Client, queue: str) -> float | None:
    """Ask in how many seconds something of the queue falls due; None: nothing that is known of.

    For who waits himself: a delay, a backoff or a lease that ends announces nothing.
    """
    return client._link.run(calls.look_ahead(queue))


def look_ahead_all(client: Client, queues: Sequence[str]) -> list[float | None]:
    """Ask that of many queues by one statement; of a queue that is gone nothing is known."""
    return client._link.run(calls.look_ahead_all(queues))


def install_at(dsn: str) -> Installed:
    """Install the schema over a new connection."""
    with psycopg.connect(dsn, autocommit=True, client_encoding="utf8") as connection:
        return schema.install(connection)
