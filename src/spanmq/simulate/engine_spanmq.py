"""Ordered groups: a queue for each type, a group for each key, leases, acks in the background."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from spanmq.client import Client
from spanmq.client._sync.listener import Due
from spanmq.errors import DecryptionError, InvalidBodyError
from spanmq.model import DeadLetter, Message, PolicyChange
from spanmq.simulate.announcements import Announcements
from spanmq.simulate.baton import Baton
from spanmq.simulate.engine import Site, Taken
from spanmq.simulate.load import Item
from spanmq.simulate.options import type_name
from spanmq.simulate.record import Recorder
from spanmq.simulate.settlement import Settlement

ID_HEADER: Final = "x-simulate-id"
# The longest delay until a worker finds messages that are not announced, and messages that became visible
# without being foreseen: this time for each queue that the worker serves, but at most the time after which it
# must announce again that it waits.
POLL_SECONDS: Final = 3.0
POLL_SECONDS_MAX: Final = 9.0
# A queue is announced at most once in 10 ms: a worker that was woken polls again after that time.
SOON_SECONDS: Final = 0.012
DEAD_PAGE: Final = 1_000


class SpanmqStage:
    """The queues, with an ordered policy."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._queues = [queue_of(site, number) for number in range(site.options.types)]
        # Without timeouts: sessions of killed workers may hold locks for a while.
        self._client = Client(site.dsn, pool_size=2, maintain_interval=1.0, listen=False, timeouts=None)
        self.tables = (
            "spanmq_core.fresh",
            "spanmq_core.held",
            "spanmq_core.done",
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
        found: list[int] = []
        for queue in self._queues:
            after = self._dead_after.get(queue, 0)
            while letters := self._client.dead_letters.list(queue, after=after, limit=DEAD_PAGE):
                found += [number for each in letters if (number := number_of(each)) is not None]
                after = self._dead_after[queue] = letters[-1].dead_letter_id
        return found

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
    """Receives runs of keys, handles one run after the other, and settles messages as it handles them."""

    def __init__(self, site: Site, types: Sequence[int], recorder: Recorder) -> None:
        self.polls = 0
        self.idle_polls = 0
        self._options = site.options
        self._recorder = recorder
        self._queues = [queue_of(site, number) for number in types]
        self._client = Client(site.dsn, pool_size=1, listen=False)
        self._announcements = Announcements(site, self._queues)
        # It listens only while there is nothing to settle, so two connections for each worker are enough.
        self._settlement = Settlement(Client(connection=self._announcements.connection), self._note)
        self._baton = Baton(site.folder / f"waits.{'.'.join(map(str, types))}")
        # Another worker was just woken: messages that came at the same time were not announced.
        self._is_soon = False
        # The result of look_ahead() before the last poll.
        self._due = Due()
        # The last poll returned all visible messages.
        self._had_all = False
        # The ends of the leases of held messages, by this worker's clock.
        self._deadlines: dict[int, float] = {}
        self._lost: set[tuple[int, str | None]] = set()
        # The last message of each run: its ack releases the key.
        self._last: set[int] = set()

    def take(self) -> Sequence[Taken]:
        """Receive the first messages of one or several groups, one group after the other."""
        # If another worker is idle, only the key of the last run may have messages, once it is acked; and if
        # the last poll returned all messages, new ones are for the idle worker. Otherwise the acks are sent
        # concurrently with the poll.
        if not self._baton.is_wanted():
            self._settlement.hurry()
        elif self._had_all:
            self._had_all = False
            self._settlement.hurry()
            return []
        else:
            self._settlement.finish()
        messages = self._receive()
        if not messages and self._settlement.finish():
            messages = self._receive()
        return messages

    def holds(self, taken: Taken) -> bool:
        """Return whether this worker still has the lease and the group; extends the lease when half of it is
        over.
        """
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
        """Ack a message in the background; at once if that releases its key and another worker waits."""
        self._settlement.add(taken.origin, taken.id)
        if taken.id in self._last and self._baton.is_wanted():
            self._settlement.hurry()

    def fail(self, taken: Taken, *, category: str) -> str:
        """Fail a message, after the earlier ones are acked; the rest of its group is no longer held."""
        self._settlement.finish()
        message: Message = taken.origin
        self._lost.add((message.lease_id or 0, message.group))
        [settled] = self._client.nack([message], "it fails in a simulation", category=category)
        return settled.outcome

    def give_back(self, rest: Sequence[Taken]) -> None:
        """Release messages."""
        self._settlement.finish()
        if messages := [taken.origin for taken in rest]:
            self._client.release(messages)

    def wait(self) -> None:
        """Wait for an announcement, or for the turn to wait for one."""
        self._settlement.finish()
        if not self._baton.is_held:
            self._baton.take()
            self._baton.hear(self._announcements.hear(0))
            self._is_soon = True
            if self._announcements.expect() or self._baton.is_news():
                return
        elif self._announcements.expect():
            return
        pause = min(POLL_SECONDS * len(self._queues), POLL_SECONDS_MAX)
        heard = self._announcements.hear(SOON_SECONDS if self._is_soon else self._due.within(pause))
        self._is_soon = heard > 0
        self._baton.hear(heard)
        # Asked before the poll that follows, so that no message becomes visible unnoticed between the two.
        self._due = Due() if heard else self._announcements.look_ahead()

    def close(self) -> None:
        """Disconnect."""
        self._settlement.close()
        self._announcements.close()
        self._client.close()
        self._baton.close()

    def _receive(self) -> Sequence[Taken]:
        self._queues.append(self._queues.pop(0))
        for queue in self._queues:
            self.polls += 1
            asked = time.monotonic()
            try:
                messages = self._client.receive(queue, self._options.batch, lease=self._options.lease)
            except (DecryptionError, InvalidBodyError):
                # The client has failed it: it becomes a dead letter when its attempts are used up.
                self._recorder.write("foreign", queue=queue, message_id=None)
                continue
            if foreign := [message for message in messages if number_of(message) is None]:
                self._refuse(foreign, [message for message in messages if message not in foreign])
                return self._receive()
            if messages:
                self._had_all = len(messages) < self._options.batch
                self._baton.pass_on(is_all=self._had_all)
                deadline = asked + self._options.lease
                self._deadlines = {message.lease_id or 0: deadline for message in messages}
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

    def _note(self, outcome: str, ids: Sequence[int]) -> None:
        self._recorder.write("settled", outcome=outcome, ids=ids)


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
