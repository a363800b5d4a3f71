"""Durations of handlers: those to report, and which are usual. No I/O here."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from math import ceil, log2
from typing import Final

from spanmq.model import Message
from spanmq.worker.job import Job

# From this number of handlers on a percentile of a kind is known; older ones count for less and less.
KNOWN_FROM: Final = 100
KEPT_MAX: Final = 100_000
SHARE: Final = 0.99
BUCKET_MAX: Final = 48

# How many handlers of a kind that failed, or not, took a time up to that of a bucket.
Times = Counter[tuple[str, bool, int]]


class UsualTimes:
    """The 99th percentile of each kind of task, of all that this worker handled."""

    def __init__(self) -> None:
        self._counts: defaultdict[str, Counter[int]] = defaultdict(Counter)
        self._seconds: dict[str, float] = {}

    def record(self, times: Iterable[tuple[str, int, int]]) -> None:
        """Record how many handlers of a kind took up to 2^(bucket/2) ms: kind, bucket and number of each."""
        kinds = set()
        for kind, bucket, count in times:
            self._counts[kind][bucket] += count
            kinds.add(kind)
        for kind in kinds:
            self._reckon(kind)

    def seconds(self, kind: str | None) -> float | None:
        """Return within which time 99 of 100 handlers of a kind ended; None if too few have."""
        return None if kind is None else self._seconds.get(kind)

    def _reckon(self, kind: str) -> None:
        counts = self._counts[kind]
        total = counts.total()
        if total > KEPT_MAX:
            for bucket in counts:
                counts[bucket] //= 2
            total = counts.total()
        if total < KNOWN_FROM:
            return
        so_far = 0
        for bucket in sorted(counts):
            so_far += counts[bucket]
            if so_far >= SHARE * total:
                self._seconds[kind] = 2.0 ** (bucket / 2) / 1000
                return


class HandlingTimes:
    """The durations of handlers that are not reported yet, by queue; `kind_of` returns the kind of a message."""

    def __init__(self, kind_of: Callable[[Message], str | None] | None) -> None:
        self._kind_of = kind_of
        self._times: defaultdict[str, Times] = defaultdict(Counter)
        # Those that were reported.
        self.usual = UsualTimes()

    def record(self, job: Job, *, failed: bool) -> None:
        """Record a job that ended."""
        if self._kind_of is None:
            return
        times = self._times[job.lease.queue]
        bucket = bucket_of(job.seconds / len(job.messages))
        for message in job.messages:
            if (kind := self._kind_of(message)) is not None:
                times[kind, failed, bucket] += 1

    def take(self, queues: Iterable[str]) -> dict[str, Times]:
        """Remove and return the times of queues."""
        return {queue: self._times.pop(queue) for queue in queues if queue in self._times}

    def put_back(self, times: Mapping[str, Times]) -> None:
        """Record times again that could not be reported."""
        for queue, counts in times.items():
            self._times[queue].update(counts)

    def reported(self, times: Mapping[str, Times]) -> None:
        """Learn what is usual from times that were reported."""
        for counts in times.values():
            self.usual.record((kind, bucket, n) for (kind, _, bucket), n in counts.items())


def bucket_of(seconds: float) -> int:
    """Return the bucket of a duration: bucket b ends at 2^(b/2) ms."""
    return 0 if seconds <= 0.001 else min(ceil(2 * log2(seconds * 1000)), BUCKET_MAX)
