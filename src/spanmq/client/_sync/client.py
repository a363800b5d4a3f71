# Generated from src/spanmq/client/_async/client.py by tools/generate_sync.py: change that file.

"""The synchronous client: the verbs of every day, and a namespace for each noun."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Self

from psycopg import Connection
from psycopg_pool import ConnectionPool

from spanmq import tracing
from spanmq.client import argument, functions
from spanmq.client._sync import copy
from spanmq.client._sync.admin import Admin
from spanmq.client._sync.batches import Batches
from spanmq.client._sync.dead_letters import DeadLetters
from spanmq.client._sync.health import Health
from spanmq.client._sync.inspect import Inspect
from spanmq.client._sync.listener import receive_within
from spanmq.client._sync.queues import Queues
from spanmq.client._sync.results import Results
from spanmq.client._sync.schedules import Schedules
from spanmq.client._sync.signals import Signals
from spanmq.client._sync.source import source_of
from spanmq.client._sync.topics import Subscriptions, Topics
from spanmq.client.argument import Delay, Seconds, optional
from spanmq.client.call import SqlCall, queue_call
from spanmq.client.dsn import DEFAULT, Timeouts
from spanmq.client.environment import default_dsn
from spanmq.client.functions import DedupUntil, Grouped, Held, OnDuplicate, SendOptions
from spanmq.client.namespace import Namespace
from spanmq.client.options import check_options, check_password, check_source
from spanmq.client.password import Password
from spanmq.client.rows import by_reason, numbers, settlements
from spanmq.codec import batch
from spanmq.codec.batch import EachGroup, EachHeaders
from spanmq.codec.body import Codec, Decoder, Encoder, Headers, encode_headers
from spanmq.codec.encryption import Encryption, Unopened
from spanmq.model import Message, Settled
from spanmq.schema import Installed

SHORTEST_LEASE: Final = timedelta(milliseconds=1)


class Client:
    """Send and receive messages.

    With a `dsn` it keeps a pool of up to `pool_size` connections and waits at most `timeout` seconds for one of them;
    it connects when a call needs a connection. With a `pool` of psycopg_pool it borrows connections. With an open
    `connection`, psycopg's or a session of another library (docs/guides/client.md), every call joins the open
    transaction, and the client never commits. Without any of them, the environment variable SPANMQ_DSN names the
    database; without this one, the client uses the embedded server, and installs the schema there.

    Over a pool each call is its own transaction. Unless `durable_claims`, a `receive` then does not wait for the disk:
    messages of a claim that a crash loses are received again. Waiting uses LISTEN on one more connection, unless
    `listen` is False, and polls at growing intervals up to `poll_interval` seconds. `maintain_interval` is the seconds
    between background runs of maintenance (None: none). `pooler` says that the DSN leads to a pooler in transaction
    mode, such as PgBouncer: no statement is prepared, no time limits are passed, and waiting only polls. `timeouts`
    are the time limits of the pool's sessions, unless the DSN sets others; None passes none. `on_connect` is called
    with each new connection of the client's own pool, in autocommit, before its use. `password` is a function that
    returns the password of each new connection, in place of the DSN's: for one that rotates, or a token that expires;
    it may block. Without it, the command in SPANMQ_PASSWORD_COMMAND prints the password, if the DSN has none.

    `encoder` is a function that returns a body as JSON (str or bytes), in place of the client's own. `decoder` is a
    function that returns a body from its JSON in bytes. With an `encryption` bodies are encrypted and decrypted. With
    `answer_bytes_max` a list of messages ends before more bytes of bodies than that (but not before its first), and a
    receive of more raises AnswerTooLargeError.

    Raises InvalidArgumentError for arguments that are not valid. A call raises InvalidArgumentError for an argument
    that is not valid, QueueNotFoundError for a queue that does not exist or that the role may not see,
    MissingPrivilegeError without the privilege, SchemaMissingError, SchemaVersionError or NotSupportedByUpstreamError
    if the database lacks the function, and one of `spanmq.errors.TEMPORARY` when the server or the connection fails:
    after ConnectionLostError it is unknown whether the call took effect, after any other error nothing has changed.
    """

    # A namespace for each noun.
    queues = Namespace(Queues)
    dead_letters = Namespace(DeadLetters)
    schedules = Namespace(Schedules)
    batches = Namespace(Batches)
    results = Namespace(Results)
    signals = Namespace(Signals)
    topics = Namespace(Topics)
    subscriptions = Namespace(Subscriptions)
    inspect = Namespace(Inspect)
    health = Namespace(Health)
    admin = Namespace(Admin)

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
        maintain_interval: float | None = None,
        durable_claims: bool = False,
        listen: bool = True,
        poll_interval: float = 0.5,
        pooler: bool = False,
        timeouts: Timeouts | None = DEFAULT,
        on_connect: Callable[[Connection[Any]], Any] | None = None,
        password: Password | None = None,
        answer_bytes_max: int | None = None,
    ) -> None:
        if dsn is None and pool is None and connection is None:
            dsn = default_dsn()
        check_source(dsn, pool, connection, ConnectionPool)
        check_options(
            pool_size=pool_size,
            timeout=timeout,
            maintain_interval=maintain_interval,
            poll_interval=poll_interval,
            encoder=encoder,
            decoder=decoder,
            timeouts=timeouts,
        )
        check_password(password, dsn)
        source = source_of(
            dsn,
            pool,
            connection,
            pool_size=pool_size,
            timeout=timeout,
            maintain_interval=maintain_interval,
            durable=durable_claims,
            listen=listen,
            pooler=pooler,
            timeouts=timeouts,
            on_connect=on_connect,
            password=password,
            answer_bytes_max=answer_bytes_max,
        )
        self._source, self._link = source, source.link
        self._codec = Codec(encoder, decoder, encryption)
        self._poll_interval = poll_interval
        self.queues = Queues(self._link)
        self.dead_letters = DeadLetters(self._link, self._codec)
        self.schedules = Schedules(self._link, self._codec)
        self.batches = Batches(self._link, self._codec)
        self.results = Results(self._link, self._codec, source.settle_listener, self._poll_interval)
        self.signals = Signals(self._link, self._codec)
        self.topics = Topics(self._link, self._codec)
        self.subscriptions = Subscriptions(self._link)
        self.inspect = Inspect(self._link, self._codec)
        self.health = Health(self._link)
        self.admin = Admin(self._link, source.listener)

    # The client itself.

    def open(self) -> Self:
        """Connect now, and not at the first call; return the client. Raises ConnectionFailedError if no server
        answers.
        """
        self._source.open()
        return self

    def close(self, *, abandon: bool = False) -> None:
        """Stop what runs in the background and close the pool, if it is the client's own. Raises nothing.

        Calls under way go on; with `abandon` they end at once, as if the connection were lost.
        """
        self._source.close(abandon=abandon)

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
        """The connection or session of a client that has one, for your own statements in its transaction.

        Raises NotPossibleError for a client over a pool, and after the end of the transaction.
        """
        return self._link.connection

    @contextmanager
    def transaction(self) -> Iterator[Client]:
        """Yield a client whose calls all take effect at the end of the block, or not at all if it raises.

        On a connection of yours it is a savepoint, or, in autocommit mode, a transaction. Raises
        InvalidTransactionError at the end of a block in which a call has failed and the error was suppressed.
        """
        with self._link.transaction() as link:
            yield Client(
                connection=link,
                encoder=self._codec.encoder,
                decoder=self._codec.decoder,
                encryption=self._codec.encryption,
                poll_interval=self._poll_interval,
            )

    def install(self, *, follow_table_grants: bool = False) -> Installed:
        """Install the schema, or upgrade it to this release, over a connection of its own, and commit.

        Does nothing if it is up to date; several processes may call it at once. With `follow_table_grants`,
        privileges on `pgmq.q_<name>` count as verbs: `admin.grants.follow_tables` describes it. Returns what was
        done. Raises NotPossibleError for a database with upstream PGMQ, SchemaVersionError for one with a newer
        schema or a server that is too old, MissingPrivilegeError.
        """
        return self._source.install(follow_table_grants=follow_table_grants)

    # Sending.

    def send(
        self,
        queue: str,
        body: object,
        *,
        headers: Headers | None = None,
        group: str | None = None,
        delay: Delay | None = None,
        priority: int = 0,
        expires_in: Seconds | None = None,
        max_attempts: int | None = None,
        dedup_id: str | None = None,
        dedup_for: Seconds = 300.0,
        fingerprint: str | None = None,
        ordered: bool = False,
        dedup_until: DedupUntil | None = None,
        on_duplicate: OnDuplicate = "keep",
    ) -> int:
        """Send a message with a `body` (any value that JSON can represent) into a `queue`; return its id.

        `headers` is a mapping with texts as keys. Messages of one `group` are delivered in order to receivers that
        receive in order. After a `delay` (seconds, a timedelta, or the moment itself) it becomes visible.

        A higher `priority` (0 to 9) comes first. After `expires_in` seconds the message is not delivered any more,
        after `max_attempts` deliveries it is a dead letter. A message with the `dedup_id` of one that was sent within
        `dedup_for` seconds is not sent: the id returned is that one's. Raises DedupIdReusedError if that one had
        another `fingerprint`. `ordered` senders of one group commit one after the other, so that its ids are in the
        order of commit.

        With `dedup_until` "settled" the `dedup_id` stands for a message as long as that is in the queue, with "started"
        until it is first received. Then `on_duplicate` says what becomes of a duplicate: "keep" returns the id of the
        message that is in the queue, "replace" cancels that one and sends this one, "raise" raises DedupIdInUseError.

        Raises InvalidBodyError or BodyTooLargeError before anything is sent, QueueFullError, and QueueNotFoundError.
        """
        with tracing.sending("send", queue) as sending:
            codec = self._codec.of(queue)
            encoded = codec.encode(body), encode_headers(sending.one(headers), group)
            stored = codec.fingerprint(fingerprint)
            options = SendOptions(
                priority, expires_in, max_attempts, dedup_for, stored, ordered, dedup_until, on_duplicate
            )
            if dedup_id is None and options.is_plain:
                return sending.sent(self._link.run(functions.send(queue, *encoded, delay)))
            dedup_ids = None if dedup_id is None else [dedup_id]
            [message_id] = self._link.run_all(
                functions.send_messages(queue, iter([[encoded]]), delay, options, dedup_ids)
            )
            return sending.sent(message_id)

    def send_batch(
        self,
        queue: str,
        bodies: Iterable[object],
        *,
        headers: EachHeaders = None,
        group: EachGroup = None,
        delay: Delay | None = None,
        priority: int = 0,
        expires_in: Seconds | None = None,
        max_attempts: int | None = None,
        dedup_ids: Iterable[str | None] | None = None,
        dedup_for: Seconds = 300.0,
        fingerprint: str | None = None,
        ordered: bool = False,
        dedup_until: DedupUntil | None = None,
        on_duplicate: OnDuplicate = "keep",
    ) -> list[int]:
        """Send any number of `bodies` into a `queue`, all or none; return the ids of the messages in order.

        `headers` and `group` are one for all, or one for each. Over a pool, bodies may come from a generator: they are
        taken ten thousand at a time, in one transaction that lasts as long as that takes. Large batches go by COPY
        where the role may. `dedup_ids` has one, or None, for each; two alike in one batch are one message. The other
        options are those of `send`, for all: `delay`, `priority`, `expires_in`, `max_attempts`, `dedup_for`,
        `fingerprint`, `ordered`, `dedup_until`, `on_duplicate`. Raises what `send` raises, and InvalidArgumentError if
        there are not as many headers, groups or ids as bodies; then none is sent.
        """
        with tracing.sending("send_batch", queue) as sending:
            codec = self._codec.of(queue)
            encoded = batch.encode(codec, bodies, sending.each(headers), group)
            stored = codec.fingerprint(fingerprint)
            options = SendOptions(
                priority, expires_in, max_attempts, dedup_for, stored, ordered, dedup_until, on_duplicate
            )
            if dedup_ids is None and options.is_plain:
                message_ids = copy.send_batch(self._link, queue, encoded, delay)
            else:
                chunks = batch.chunks(encoded)
                message_ids = self._link.run_all(
                    functions.send_messages(queue, chunks, delay, options, dedup_ids)
                )
            sending.sent_many(len(message_ids))
            return message_ids

    # Receiving. With a `wait` a call waits up to that many seconds for the first message, outside of the server.

    def receive(
        self,
        queue: str,
        quantity: int = 1,
        *,
        lease: Seconds | None = None,
        slots: int = 1,
        alone: bool = False,
        retries: int | None = None,
        newest: bool = False,
        wait: Seconds | None = None,
    ) -> list[Message]:
        """Lease up to `quantity` messages of a `queue`, oldest first.

        It may return [] at once; with a `wait` it waits up to this number of seconds for the first message. The lease
        lasts `lease` seconds, by default as long as the queue's policy says (30 seconds). Ack each message before
        `leased_until`, or it is delivered again with `attempt` one higher. `slots` is the number of parts that are
        settled by separate transactions: 1 if all are acked together, fifty for fifty concurrent handlers.

        `alone` is for workers: a message that may have killed a process comes by itself, with slot 0 and without its
        body. Its delivery counts when SQL's `begin_alone` has returned it, with its body. With `retries`, no more than
        this number, and than half of the batch, were received before, or one more than this number where no others are
        visible; with `newest` only the newest messages that were never received, or one other message if there are
        none. Neither holds in an ordered queue.

        A message that can't be decrypted or decoded is nacked; its DecryptionError or InvalidBodyError is raised if
        no other came. Raises AnswerTooLargeError (with `answer_bytes_max`) and QueueNotFoundError.
        """
        call = functions.receive(self._codec.of(queue), queue, quantity, lease, slots, alone, retries, newest)
        messages = self._take(call, wait)
        if any(type(message.body) is Unopened for message in messages):
            return self._opened(messages)
        return messages

    def read(
        self,
        queue: str,
        quantity: int = 1,
        *,
        lease: Seconds = 30,
        conditional: Mapping[str, Any] | None = None,
        grouped: Grouped | None = None,
        wait: Seconds | None = None,
    ) -> list[Message]:
        """Read up to `quantity` messages of a `queue` as PGMQ does; settle them with delete or archive.

        They are hidden for `lease` whole seconds. `conditional` reads only messages whose body contains it. `grouped`
        reads in the order of groups: "fill" from the oldest group on (PGMQ's read_grouped), "round_robin" from all in
        turn (read_grouped_rr), "head" the first of each (read_grouped_head). With a `wait` it waits up to this number
        of seconds for the first message. A body that can't be decrypted or decoded is an `Unopened`, which has the
        error. Raises QueueNotFoundError, AnswerTooLargeError (with `answer_bytes_max`), and InvalidArgumentError for
        both `conditional` and `grouped`.
        """
        codec = self._codec.of(queue)
        condition = None if conditional is None else self._codec.encode(conditional)
        return self._take(functions.read(codec, queue, quantity, lease, condition, grouped), wait)

    def pop(self, queue: str, quantity: int = 1) -> list[Message]:
        """Receive up to `quantity` messages of a `queue` and delete them.

        If the receiver loses one, it is not delivered again. A body that can't be decrypted or decoded is an
        `Unopened`, which has the error. Raises QueueNotFoundError and AnswerTooLargeError (with `answer_bytes_max`).
        """
        most = argument.integer("quantity", quantity).to("qty")
        return self._take(functions.from_pgmq(self._codec.of(queue), queue, "pop", most), None)

    def peek(
        self,
        queue: str,
        quantity: int = 10,
        *,
        after: int = 0,
        body_bytes_max: int | None = None,
        newest_first: bool = False,
    ) -> list[Message]:
        """Return up to `quantity` unsettled messages of a `queue` with ids above `after`, in order; receive none.

        With `newest_first` the newest one comes first, and the ids are below `after` (0: all). A body or
        headers of more than `body_bytes_max` bytes are replaced by `{"spanmq.cut": bytes}`. Raises
        QueueNotFoundError.
        """
        codec = self._codec.of(queue)
        return self._link.run(
            functions.peek("peek", codec, queue, quantity, after, body_bytes_max, newest_first=newest_first)
        )

    # Settling: messages from `receive`, or `Leased(queue, lease_id, message_ids)` to name them by ids.

    def ack(self, messages: Held | Iterable[Held]) -> list[Settled]:
        """Settle received `messages` (one or several): they are done. Return the outcome for each.

        It is "acked", or "stale" if the lease no longer holds the message, which is then left alone. Raises
        InvalidArgumentError for a message without a lease, and QueueNotFoundError.
        """
        return tracing.settled("ack", self._link.run_all(functions.settle("ack", messages)))

    def nack(
        self,
        messages: Held | Iterable[Held],
        error: str | None = None,
        *,
        category: str | None = None,
        retry_in: Seconds | None = None,
        error_class: str | None = None,
        traceback: str | None = None,
        worker: str | None = None,
    ) -> list[Settled]:
        """Return received `messages` (one or several) to the queue with a failure, and the outcome for each.

        It is "retrying", "dead" or "stale". A message is visible again after `retry_in` seconds, or the backoff of
        its category or queue. It becomes a dead letter when its attempts are used up, or the `category` is not tried
        again (PERMANENT, BUSINESS). Without a category the rules find one in `error`, the text of the failure, and
        `error_class`, the name of its class. `traceback` and the name of the `worker` are kept with them. Raises
        InvalidArgumentError for a message without a lease or an unknown category, and QueueNotFoundError.
        """
        failure = functions.failure(error, category, error_class, traceback, worker)
        retry = optional(argument.seconds, "retry_in", retry_in)
        settled = self._link.run_all(functions.settle("nack", messages, *failure, *retry))
        return tracing.settled("nack", settled)

    def reject(
        self,
        messages: Held | Iterable[Held],
        error: str | None = None,
        *,
        category: str | None = None,
        error_class: str | None = None,
        traceback: str | None = None,
        worker: str | None = None,
    ) -> list[Settled]:
        """Make dead letters of received `messages` (one or several), whatever attempts they have left.

        Return the outcome for each, "dead" or "stale". `error`, `category`, `error_class`, `traceback` and `worker`
        are those of `nack`; so is what it raises.
        """
        failure = functions.failure(error, category, error_class, traceback, worker)
        return tracing.settled("reject", self._link.run_all(functions.settle("reject", messages, *failure)))

    def release(self, messages: Held | Iterable[Held]) -> list[Settled]:
        """Return received `messages` (one or several) to the queue unhandled: each is "released" or "stale".

        They are visible at once, and this delivery does not count as an attempt. Raises InvalidArgumentError for a
        message without a lease, and QueueNotFoundError.
        """
        return tracing.settled("release", self._link.run_all(functions.settle("release", messages)))

    def close_bucket(self, messages: Held | Iterable[Held], seconds: Seconds) -> list[Settled]:
        """Let nobody receive for `seconds` from the buckets that received `messages` (one or several) were drawn from.

        The buckets are those of the messages' groups with `rate_limit_per_group`, else that of the queue with
        `rate_limit`. Return the outcome for each: "closed", "stale", or "unlimited" without such a limit. The messages
        stay in their lease. Raises InvalidArgumentError for a message without a lease or a negative time, and
        QueueNotFoundError.
        """
        return self._link.run_all(
            functions.settle("close_bucket", messages, argument.seconds("seconds", seconds))
        )

    def extend(
        self, messages: Held | Iterable[Held], seconds: Seconds, *, shorten: bool = False
    ) -> list[Settled]:
        """Hold received `messages` (one or several) for at least `seconds` from now on: each is "extended" or "stale".

        With `shorten` for this time also where they are held longer. The others of the lease stay as they were. A
        message of an expired lease is held again unless it was received meanwhile. Raises InvalidArgumentError for a
        message without a lease and for no seconds, and QueueNotFoundError.
        """
        arguments = (argument.seconds("seconds", seconds), argument.boolean("shorten", shorten))
        return self._link.run_all(functions.settle("extend", messages, *arguments))

    def cancel(self, queue: str, message_ids: int | Iterable[int]) -> list[Settled]:
        """Cancel messages of a `queue` by their `message_ids` (one or several); return the outcome for each.

        One that no receiver holds is deleted: "cancelled". The outcome of another is "cancelling": its worker cancels
        the async handler; a plain function asks (`spanmq.cancelled`). When the handler has ended, or the lease, the
        message ends without a retry. An ack that comes before counts. "unknown": there is none of this id. Raises
        QueueNotFoundError.
        """
        arguments = (argument.bigints("message_ids", message_ids).to("msg_ids"),)
        return self._link.run(queue_call(queue, "cancel", settlements, *arguments))

    def delete(self, queue: str, message_ids: int | Iterable[int]) -> list[int]:
        """Delete messages of a `queue` by their `message_ids` (one or several), even those that a receiver holds.

        Return the ids of those that existed. Raises QueueNotFoundError.
        """
        ids = argument.bigints("message_ids", message_ids).to("msg_ids")
        return self._link.run(queue_call(queue, "delete", numbers, ids, native=False))

    def archive(self, queue: str, message_ids: int | Iterable[int]) -> list[int]:
        """Move messages of a `queue` to its archive by their `message_ids` (one or several), even leased ones.

        Return the ids of those that existed. Raises QueueNotFoundError.
        """
        ids = argument.bigints("message_ids", message_ids).to("msg_ids")
        return self._link.run(queue_call(queue, "archive", numbers, ids, native=False))

    def set_vt(self, queue: str, message_ids: int | Iterable[int], delay: Delay) -> list[Message]:
        """Hide messages of a `queue`, by their `message_ids` (one or several), for a `delay` from now.

        The delay is seconds, a timedelta, or the moment until which they are hidden. Return those that exist. Raises
        QueueNotFoundError.
        """
        arguments = (
            argument.bigints("message_ids", message_ids).to("msg_ids"),
            argument.moment("delay", delay).to("vt"),
        )
        return self._link.run(functions.from_pgmq(self._codec.of(queue), queue, "set_vt", *arguments))

    def _take(self, call: SqlCall[list[Message]], wait: Seconds | None) -> list[Message]:
        with tracing.receiving(call.function, call.queue) as receiving:
            received = receive_within(self._link, self._source.listener, call, wait, self._poll_interval)
            return receiving.received(received)

    def _opened(self, messages: list[Message]) -> list[Message]:
        """Nack messages that can't be decrypted or read; raises why if no other message came."""
        closed = [message for message in messages if isinstance(message.body, Unopened)]
        opened = [message for message in messages if not isinstance(message.body, Unopened)]
        for (reason, error_class), alike in by_reason(closed).items():
            self.nack(alike, reason, error_class=error_class)
        # In an ordered queue this has released the messages behind: return only those that are still held.
        leases = [message.leased_until - message.last_read_at for message in opened if message.last_read_at]
        settled = self.extend(opened, max([SHORTEST_LEASE, *leases]))
        held = {settlement.message_id for settlement in settled if settlement.outcome == "extended"}
        if not held:
            raise closed[0].body.error
        return [message for message in opened if message.message_id in held]
