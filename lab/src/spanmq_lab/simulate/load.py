"""The load: the key of each message, how long it takes and whether it fails. The same for every engine.

All of it is derived from the seed and the message's number, so a worker only needs that number.
"""

import json
import random
from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, count, islice
from pathlib import Path
from typing import Any, Final

from spanmq.errors import InvalidArgumentError
from spanmq_lab.simulate.options import Options
from spanmq_lab.simulate.work import Work

NO_KEY: Final = "NA"


@dataclass(frozen=True, slots=True)
class Item:
    """One message before it is sent: its number in the run, its type (from 0), key and body.

    `key_number` is used where the key must be a number.
    """

    id: int
    type: int
    key: str
    key_number: int
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Taken:
    """A message that a worker holds; `until` and `taken_at` are times of the server's clock, if there is a
    lease.

    `origin` is for the engine.
    """

    id: int
    attempt: int
    taken_at: float | None = None
    until: float | None = None
    origin: Any = None


class Load:
    """The messages of a run."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._work = Work.parse(options.work)
        weights = ((number + 1) ** -options.skew for number in range(options.keys))
        self._bounds = list(accumulate(weights))

    def items(self) -> Iterator[Item]:
        """Yield the messages, in the order of their ids, from 1."""
        made = self._from_source() if self._options.source is not None else map(self._item, count(1))
        return islice(made, self._options.fill_db)

    def work_seconds(self, message: int) -> float:
        """Return the seconds that a message takes."""
        return self._work.seconds(self._chance("work", message))

    def is_poison(self, message: int) -> bool:
        """Return whether a message fails at every attempt."""
        return self._options.poison > 0 and self._chance("poison", message).random() < self._options.poison

    def fails(self, message: int, attempt: int) -> bool:
        """Return whether this attempt fails."""
        if self.is_poison(message):
            return True
        rate = self._options.failure_rate
        return rate > 0 and self._chance("failure", message, attempt).random() < rate

    def _chance(self, *what: object) -> random.Random:
        return random.Random(f"{self._options.seed}/{what}")

    def _item(self, message: int) -> Item:
        chance = self._chance("key", message)
        kind = chance.randrange(self._options.types)
        key = bisect(self._bounds, chance.random() * self._bounds[-1])
        body = {"order_id": key + 1, "line": message, "amount": chance.randrange(100, 100_000) / 100}
        return Item(message, kind, str(key + 1), key + 1, body)

    def _from_source(self) -> Iterator[Item]:
        numbers: dict[str, int] = {}
        for message, (key, body) in enumerate(read_source(self._options), start=1):
            number = numbers.setdefault(key, len(numbers) + 1)
            # A key always has the same type, because order is kept within a queue.
            yield Item(message, number % self._options.types, key, number, body)


def read_source(options: Options) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the keys and bodies of real data. Raises InvalidArgumentError for an invalid line."""
    if options.source == "flights":
        from spanmq_lab.demo.flights import ROWS, find_file, group_of, read_flights

        for flight in read_flights(find_file(), ROWS):
            yield group_of(flight) or NO_KEY, flight
        return
    path, field = Path(str(options.source)), str(options.key)
    try:
        lines = path.open(encoding="utf-8")
    except OSError as error:
        raise InvalidArgumentError(f"{path} can't be read: {error.strerror}") from error
    with lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield _row(line, field, f"line {number} of {path}")


def _row(line: str, field: str, place: str) -> tuple[str, dict[str, Any]]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise InvalidArgumentError(f"{place} is not valid JSON: {error}") from error
    if not isinstance(row, dict) or field not in row:
        raise InvalidArgumentError(f"{place} is not a JSON object with a field {field!r}")
    value = row[field]
    return value if isinstance(value, str) else json.dumps(value), row
