"""Usual durations of handlers: a longer one is reported while it runs. No I/O here."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Final

# From this number of handlers on a percentile of a kind is known; older ones count for less and less.
KNOWN_FROM: Final = 100
KEPT_MAX: Final = 100_000
SHARE: Final = 0.99


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
