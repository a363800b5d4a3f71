"""Ordered groups: a queue a type, a group a key, leases, acks in the background."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg import Connection

from spanmq.client import Client
from spanmq.errors import ConnectionFailedError
from spanmq.listen import channel_of
from spanmq.message import Message, Settled
from spanmq.simulate import statement
from spanmq.simulate.baton import Baton
from spanmq.simulate.engine import Site, Taken
from spanmq.simulate.load import Item
from spanmq.simulate.options import type_name
from spanmq.simulate.record import Recorder
from spanmq.simulate.settlement import Settlement

ID_HEADER: Final = "x-simulate-id"
# What nobody announces (a retry that falls due, a lease that ran out) is found so late at most.
POLL_SECONDS: Final = 1.0
DEAD_PAGE: Final = 1_000


class SpanmqStage:
    """The queues, whose policy is ordered."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._queues = [queue_of(site, number) for number in range(site.options.types)]
        self._client = Client(site.dsn, pool_size=2, listen=False)
        self.tables = (
            "spanmq.span",
            "spanmq.settled",
            *(f"spanmq.log_{queue}" for queue in self._queues),
            *(f"pgmq.a_{queue}" for queue in self._queues),
        )
        self.places = tuple(self._queues)
        self._dead_after: dict[str, int] = {}

    def prepare(self) -> None:
        """Make the queues."""
        options = self._site.options
        policy = {
            "ordered": True,
            "max_attempts": options.max_attempts,
            "backoff_base": options.backoff,
            "archive_on_ack": not options.delmsg,
        }
        for queue in self._queues:
            self._client.create_queue(queue)
            self._client.set_policy(queue, policy)

    def begin(self) -> None:
        """Announce messages from now on."""
        for queue in self._queues:
            self._client.enable_notify_insert(queue, throttle=0)

    def left(self) -> int:
        """Count the messages of all queues."""
        return sum(self._client.metrics(queue).length for queue in self._queues)

    def new_dead(self) -> list[int]:
        """Look through the dead letters that came since."""
        found: list[int] = []
        for queue in self._queues:
            after = self._dead_after.get(queue, 0)
            while letters := self._client.dead_letters(queue, after=after, quantity=DEAD_PAGE):
                found += [int((letter.headers or {})[ID_HEADER]) for letter in letters]
                after = self._dead_after[queue] = letters[-1].dead_letter_id
        return found

    def drop(self) -> None:
        """Drop the queues."""
        for queue in self._queues:
            self._client.drop_queue(queue)

    def close(self) -> None:
        """Disconnect."""
        self._client.close()


class SpanmqSender:
    """Sends messages, each with its key as its group."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._client = Client(site.dsn, pool_size=1, listen=False, maintain_interval=None)
        self._inner: Client | None = None

    @contextmanager
    def transaction(self) -> Iterator[object]:
        """Make one transaction of all that is sent in the block."""
        with self._client.transaction() as inner:
            self._inner = inner
            try:
                yield None
            finally:
                self._inner = None

    def send(self, items: Sequence[Item]) -> None:
        """Send messages of one type, all or none."""
        queue = queue_of(self._site, items[0].type)
        client = self._inner or self._client
        if len(items) == 1:
            client.send(queue, items[0].body, headers={ID_HEADER: items[0].id}, group=items[0].key)
            return
        client.send_batch(
            queue,
            [item.body for item in items],
            headers=[{ID_HEADER: item.id} for item in items],
            group=[item.key for item in items],
        )

    def close(self) -> None:
        """Disconnect."""
        self._client.close()


class SpanmqReceiver:
    """Receives runs of keys, handles them one by one and settles as it goes."""

    def __init__(self, site: Site, types: Sequence[int], recorder: Recorder) -> None:
        self.polls = 0
        self.idle_polls = 0
        self._options = site.options
        self._recorder = recorder
        self._queues = [queue_of(site, number) for number in types]
        self._client = Client(site.dsn, pool_size=2, listen=False, maintain_interval=None)
        self._listening = connect(site)
        for queue in self._queues:
            self._listening.execute(statement.composed("listen", channel=channel_of(queue)))
        self._baton = Baton(site.folder / f"waits.{'.'.join(map(str, types))}")
        self._settlement = Settlement(self._client, self._note)
        # How long the leases last of which something is held, by this worker's clock.
        self._deadlines: dict[int, float] = {}
        self._lost: set[tuple[int, str | None]] = set()
        self._ids: dict[int, int] = {}

    def take(self) -> Sequence[Taken]:
        """Receive the head of one or several groups."""
        self._queues.append(self._queues.pop(0))
        self._lost.clear()
        self._ids.clear()
        for queue in self._queues:
            self.polls += 1
            asked = time.monotonic()
            messages = self._client.receive(queue, self._options.batch, lease=self._options.lease)
            if messages:
                self._baton.pass_on(is_all=len(messages) < self._options.batch)
                self._deadlines = {
                    message.lease_id: asked + self._options.lease
                    for message in messages
                    if message.lease_id is not None
                }
                return [self._taken(message) for message in messages]
        self.idle_polls += 1
        return []

    def holds(self, taken: Taken) -> bool:
        """Tell whether lease and group are still ours; makes the lease longer when half of it is over."""
        message: Message = taken.origin
        lease = message.lease_id or 0
        if (lease, message.group) in self._lost:
            return False
        rest = self._deadlines[lease] - time.monotonic()
        if 0 < rest < self._options.lease / 2:
            asked = time.monotonic()
            if self._client.extend(message.queue, lease, self._options.lease):
                self._deadlines[lease] = asked + self._options.lease
                rest = self._options.lease
        return rest > 0

    def done(self, taken: Taken) -> None:
        """Ack it in the background."""
        message: Message = taken.origin
        self._settlement.add(message.queue, message.lease_id or 0, message.message_id)

    def fail(self, taken: Taken, *, category: str) -> str:
        """Nack it, after what was done before it was acked; the rest of its group is no longer ours."""
        self._settlement.finish()
        message: Message = taken.origin
        self._lost.add((message.lease_id or 0, message.group))
        [settled] = self._client.nack([message], "it fails in a simulation", category=category)
        return settled.outcome

    def finish(self) -> None:
        """Return when everything that was done is acked: the groups are free then."""
        self._settlement.finish()

    def give_back(self, rest: Sequence[Taken]) -> None:
        """Release it."""
        self._settlement.finish()
        if messages := [taken.origin for taken in rest]:
            self._client.release(messages)

    def wait(self) -> None:
        """Wait for an announcement, or for the turn to wait for one."""
        if not self._baton.is_held:
            self._baton.take()
            self._hear(0)
            if self._baton.is_news():
                return
        self._hear(POLL_SECONDS)
        self._hear(0)

    def close(self) -> None:
        """Disconnect."""
        self._settlement.close()
        self._listening.close()
        self._client.close()
        self._baton.close()

    def _hear(self, seconds: float) -> None:
        """Wait for an announcement at most so long; without waiting, count all that came."""
        limit = 1 if seconds else None
        self._baton.hear(sum(1 for _ in self._listening.notifies(timeout=seconds, stop_after=limit)))

    def _taken(self, message: Message) -> Taken:
        number = int((message.headers or {})[ID_HEADER])
        self._ids[message.message_id] = number
        return Taken(
            id=number,
            attempt=message.attempt,
            taken_at=None if message.last_read_at is None else message.last_read_at.timestamp(),
            until=message.leased_until.timestamp(),
            origin=message,
        )

    def _note(self, settled: Sequence[Settled]) -> None:
        outcomes: dict[str, list[int]] = {}
        for each in settled:
            outcomes.setdefault(each.outcome, []).append(self._ids.get(each.message_id, 0))
        for outcome, ids in outcomes.items():
            self._recorder.write("settled", outcome=outcome, ids=ids)


def queue_of(site: Site, number: int) -> str:
    """Name the queue of a type."""
    return f"{site.name}_{type_name(number)}"


def connect(site: Site) -> Connection[Any]:
    """Connect in autocommit, to listen."""
    try:
        return psycopg.connect(site.dsn, autocommit=True, application_name=site.name)
    except psycopg.OperationalError as error:
        raise ConnectionFailedError(str(error).strip()) from error
