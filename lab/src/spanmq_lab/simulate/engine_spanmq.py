"""Ordered groups: a queue for each type, a group for each key, leases."""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from spanmq.client import Client
from spanmq.errors import DecryptionError, InvalidBodyError
from spanmq.model import DeadLetter, Leased, Message, PolicyChange
from spanmq_lab.simulate.load import Item, Taken
from spanmq_lab.simulate.options import Site, type_name
from spanmq_lab.simulate.record import Recorder

# What it reports, the run reports as a failure, or tries again.
logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())

ID_HEADER: Final = "x-simulate-id"
# How long an idle worker waits in one receive; of several queues it waits for one after the other.
WAIT_SECONDS: Final = 1.0
SLICE_SECONDS: Final = 0.1
# Handled messages are gathered for this time: with one call for each message, acks would take most of the
# CPU. Messages that a killed worker had not acked are delivered again.
GATHER_SECONDS: Final = 0.1
DEAD_PAGE: Final = 1_000


class SpanmqStage:
    """The queues, with an ordered policy."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._queues = [queue_of(site, number) for number in range(site.options.types)]
        # Without timeouts: sessions of killed workers may hold locks for a while.
        self._client = Client(site.dsn, pool_size=2, maintain_interval=1.0, listen=False, timeouts=None)
        self.tables = (
            "spanmq_core.state",
            "spanmq_core.later",
            *(f"spanmq_core.log_{queue}" for queue in self._queues),
            *(f"pgmq.a_{queue}" for queue in self._queues),
        )
        self.places = tuple(self._queues)
        self._dead_after: dict[str, int] = {}

    def prepare(self) -> None:
        """Create the queues."""
        options = self._site.options
        policy: PolicyChange = {
            "ordered": True,
            "max_attempts": options.max_attempts,
            "backoff_base": options.backoff,
            "archive_on_ack": not options.delmsg,
        }
        for queue in self._queues:
            self._client.queues.create(queue)
            self._client.queues.set_policy(queue, **policy)

    def begin(self) -> None:
        """Do nothing: workers announce themselves that they wait."""

    def left(self) -> int:
        """Return the number of messages in all queues."""
        return sum(self._client.queues.metrics(queue).length for queue in self._queues)

    def new_dead(self) -> list[int]:
        """Return the messages among the new dead letters."""
        numbers: list[int] = []
        for queue in self._queues:
            after = self._dead_after.get(queue, 0)
            while letters := self._client.dead_letters.list(queue, after=after, limit=DEAD_PAGE):
                numbers += [number for letter in letters if (number := number_of(letter)) is not None]
                after = self._dead_after[queue] = letters[-1].dead_letter_id
        return numbers

    def drop(self) -> None:
        """Drop the queues."""
        for queue in self._queues:
            self._client.queues.drop(queue)

    def close(self) -> None:
        """Disconnect."""
        self._client.close()


class SpanmqSender:
    """Sends messages, each with its key as its group."""

    def __init__(self, site: Site) -> None:
        self._site = site
        # Without timeouts: the options determine the duration of transactions.
        self._client = Client(site.dsn, pool_size=1, listen=False, timeouts=None)
        self._inner: Client | None = None

    @contextmanager
    def transaction(self) -> Iterator[object]:
        """Open one transaction for all that is sent in the block."""
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
    """Receives runs of keys, handles one run after the other, and acks messages as it handles them."""

    def __init__(self, site: Site, types: Sequence[int], recorder: Recorder) -> None:
        self.polls = 0
        self.idle_polls = 0
        self._options = site.options
        self._recorder = recorder
        self._queues = [queue_of(site, number) for number in types]
        # One connection for its calls, one that listens while it waits.
        self._client = Client(site.dsn, pool_size=1)
        self._is_idle = False
        # The one lease that is held, and its end by this worker's clock.
        self._lease = Leased("", 0, ())
        self._lease_ends_at = 0.0
        # The groups that it holds no more.
        self._lost: set[str | None] = set()
        # The run's numbers of handled messages by their ids, and when they are to be acked.
        self._handled: dict[int, int] = {}
        self._ack_at = 0.0
        # The last message of each run: its ack releases the key.
        self._last: set[int] = set()

    def take(self) -> Sequence[Taken]:
        """Receive the first messages of one or several groups, one group after the other."""
        self._ack()
        messages = self._receive()
        self._is_idle = not messages
        return messages

    def holds(self, taken: Taken) -> bool:
        """Return whether this worker has the lease and the group; extends a lease that is half over."""
        if taken.origin.group in self._lost:
            return False
        now = time.monotonic()
        is_half_over = 0 < self._lease_ends_at - now < self._options.lease / 2
        if is_half_over and self._extends():
            self._lease_ends_at = now + self._options.lease
        return self._lease_ends_at > now

    def done(self, taken: Taken) -> None:
        """Ack a message soon, with those that are handled next; at once if that releases its key."""
        if not self._handled:
            self._ack_at = time.monotonic() + GATHER_SECONDS
        self._handled[taken.origin.message_id] = taken.id
        if taken.id in self._last or time.monotonic() >= self._ack_at:
            self._ack()

    def fail(self, taken: Taken, *, category: str) -> str:
        """Fail a message, after the earlier ones are acked; the rest of its group is no longer held."""
        self._ack()
        self._lost.add(taken.origin.group)
        [settled] = self._client.nack([taken.origin], "it fails in a simulation", category=category)
        return settled.outcome

    def give_back(self, rest: Sequence[Taken]) -> None:
        """Release messages."""
        self._ack()
        if messages := [taken.origin for taken in rest]:
            self._client.release(messages)

    def wait(self) -> None:
        """Do nothing: the next call of `take` waits for messages."""

    def close(self) -> None:
        """Disconnect."""
        self._ack()
        self._client.close()

    def _extends(self) -> bool:
        settled = self._client.extend(self._lease, self._options.lease)
        return any(message.outcome == "extended" for message in settled)

    def _ack(self) -> None:
        handled, self._handled = self._handled, {}
        outcomes: dict[str, list[int]] = {}
        if handled:
            for settled in self._client.ack(replace(self._lease, message_ids=list(handled))):
                outcomes.setdefault(settled.outcome, []).append(handled[settled.message_id])
        for outcome, ids in outcomes.items():
            self._recorder.write("settled", outcome=outcome, ids=ids)

    @property
    def _wait(self) -> float | None:
        if not self._is_idle:
            return None
        # Most of the lease must be left after it: its end is counted from the call.
        return min(WAIT_SECONDS if len(self._queues) == 1 else SLICE_SECONDS, self._options.lease / 4)

    def _receive(self) -> Sequence[Taken]:
        self._queues.append(self._queues.pop(0))
        for queue in self._queues:
            self.polls += 1
            asked = time.monotonic()
            try:
                messages = self._client.receive(
                    queue, self._options.batch, lease=self._options.lease, wait=self._wait
                )
            except (DecryptionError, InvalidBodyError):
                # The client has failed it: it becomes a dead letter when its attempts are used up.
                self._recorder.write("foreign", queue=queue, message_id=None)
                continue
            if foreign := [message for message in messages if number_of(message) is None]:
                self._refuse(foreign, [message for message in messages if message not in foreign])
                return self._receive()
            if messages:
                ids = [message.message_id for message in messages]
                self._lease = Leased(queue, messages[0].lease_id or 0, ids)
                self._lease_ends_at = asked + self._options.lease
                self._lost.clear()
                runs = [[taken_of(message) for message in run] for run in by_group(messages)]
                self._last = {run[-1].id for run in runs}
                return [taken for run in runs for taken in run]
        self.idle_polls += len(self._queues)
        return []

    def _refuse(self, foreign: Sequence[Message], rest: Sequence[Message]) -> None:
        """Reject messages that the run did not send, and release those that were received with them."""
        for message in foreign:
            self._recorder.write("foreign", queue=message.queue, message_id=message.message_id)
        # Released first: a rejected message removes the later ones of its group from the lease.
        self._client.release(rest)
        self._client.reject(foreign, "this simulation did not send it", category="PERMANENT")


def by_group(messages: Sequence[Message]) -> list[list[Message]]:
    """Return the runs of each group.

    Handling one group after the other soon releases a group for another worker.
    """
    runs: dict[str | None, list[Message]] = {}
    for message in messages:
        runs.setdefault(message.group, []).append(message)
    return list(runs.values())


def number_of(message: Message | DeadLetter) -> int | None:
    """Return the number of a message in the run, or None if the run did not send it."""
    # Other senders may send any JSON as headers.
    headers: object = message.headers
    number = headers.get(ID_HEADER) if isinstance(headers, dict) else None
    return number if type(number) is int else None


def taken_of(message: Message) -> Taken:
    """Return a received message in the form that the worker expects."""
    number = number_of(message)
    assert number is not None
    return Taken(
        id=number,
        attempt=message.attempt,
        taken_at=None if message.last_read_at is None else message.last_read_at.timestamp(),
        until=message.leased_until.timestamp(),
        origin=message,
    )


def queue_of(site: Site, number: int) -> str:
    """Return the name of the queue of a type."""
    return f"{site.name}_{type_name(number)}"
