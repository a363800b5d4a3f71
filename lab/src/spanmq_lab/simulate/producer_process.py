"""A producer: numbers the messages of each key, sends them, and writes a record before and after."""

import contextlib
import resource
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from types import FrameType

import psycopg

from spanmq.errors import InvalidArgumentError, SpanmqError
from spanmq_lab.simulate.engines import Sender, sender_of
from spanmq_lab.simulate.load import Item, Load
from spanmq_lab.simulate.options import Site, type_name
from spanmq_lab.simulate.record import Recorder
from spanmq_lab.simulate.worker_process import Stopped


class Pace:
    """The times at which messages may be sent, at a maximum rate: lost time is not made up for."""

    def __init__(self, rate: float, began: float) -> None:
        self._rate = rate
        self._due = began

    def turn(self, quantity: int, now: float) -> float:
        """Return the time at which the next `quantity` messages may be sent."""
        self._due = max(self._due + quantity / self._rate, now)
        return self._due


class Producer:
    """Sends its share of the load: every n-th message, for n producers."""

    def __init__(self, site: Site, producer: int, sender: Sender, recorder: Recorder) -> None:
        self._options = site.options
        self._load = Load(site.options)
        self._producer = producer
        self._sender = sender
        self._recorder = recorder
        self._numbers: dict[tuple[int, str], int] = {}
        self._began = time.monotonic()
        rate = self._options.rate
        self._pace = None if rate is None else Pace(rate / self._options.producers, self._began)
        # The number of sent messages, and the time that sending took.
        self.count = 0
        self.seconds = 0.0

    def run(self) -> None:
        """Send everything."""
        batches = self._batches()
        if not self._options.transaction:
            for batch in batches:
                for messages in self._split(batch):
                    self._announce(messages)
                    at = self._recorder.now()
                    self._sender.send(messages)
                    self._recorder.write("sent", at=at, ids=[item.id for item in messages])
            return
        while self._send_for_long(batches):
            pass

    def _send_for_long(self, batches: Iterator[list[Item]]) -> bool:
        """Send in one transaction of the requested duration; return whether messages may be left."""
        ids: list[int] = []
        until = time.monotonic() + self._options.transaction
        with self._sender.transaction():
            for batch in batches:
                for messages in self._split(batch):
                    self._announce(messages)
                    self._sender.send(messages)
                    ids += [item.id for item in messages]
                if time.monotonic() >= until:
                    break
            if ids:
                time.sleep(max(until - time.monotonic(), 0))
            at = self._recorder.now()
        if ids:
            self._recorder.write("sent", at=at, ids=ids)
        return bool(ids)

    def _batches(self) -> Iterator[list[Item]]:
        mine = islice(self._load.items(), self._producer, None, self._options.producers)
        while batch := list(islice(mine, self._options.messages_per_send)):
            if self._pace is not None:
                now = time.monotonic()
                time.sleep(self._pace.turn(len(batch), now) - now)
            self.count += len(batch)
            self.seconds = time.monotonic() - self._began
            yield batch

    def _split(self, batch: Sequence[Item]) -> Iterator[list[Item]]:
        ordered = sorted(batch, key=lambda item: item.type)  # stable: each key's messages keep their order
        for _, messages in groupby(ordered, key=lambda item: item.type):
            yield list(messages)

    def _announce(self, messages: Sequence[Item]) -> None:
        for item in messages:
            number = self._numbers.get((item.type, item.key), 0) + 1
            self._numbers[item.type, item.key] = number
            poison = {"poison": True} if self._load.is_poison(item.id) else {}
            self._recorder.write(
                "sending", id=item.id, type=type_name(item.type), key=item.key, number=number, **poison
            )


def produce(site: Site, producer: int) -> None:
    """Run the producer with this number."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stop)
    recorder = Recorder(site.log, began=site.began, producer=producer)
    count, seconds = 0, 0.0
    try:
        with contextlib.closing(sender_of(site)) as sender, contextlib.suppress(Stopped):
            producing = Producer(site, producer, sender, recorder)
            try:
                producing.run()
            finally:
                count, seconds = producing.count, producing.seconds
    except (SpanmqError, psycopg.Error) as error:
        recorder.write("failure", error=str(error), is_final=isinstance(error, InvalidArgumentError))
        sys.exit(1)
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu_seconds = round(used.ru_utime + used.ru_stime, 3)
    recorder.write("producer_ended", count=count, seconds=round(seconds, 6), cpu_seconds=cpu_seconds)


def _stop(_number: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Stopped
