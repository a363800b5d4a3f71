"""The time that handling a message takes."""

import math
import random
from dataclasses import dataclass
from typing import Final, Self

from spanmq.errors import InvalidArgumentError

# The kinds, and the number of values (milliseconds) of each.
KINDS: Final = {"uniform": 2, "fixed": 1, "exponential": 1, "lognormal": 2}


@dataclass(frozen=True, slots=True)
class Work:
    """A distribution of times: `uniform:1:10` is the classic one.

    `fixed:MS`, `uniform:FROM:TO`, `exponential:MEAN`, `lognormal:MEDIAN:SIGMA` (sigma without a unit: 1 gives
    one message in forty seven times the median).
    """

    kind: str
    numbers: tuple[float, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a specification; raises InvalidArgumentError."""
        kind, *parts = text.split(":")
        try:
            numbers = tuple(float(part) for part in parts)
        except ValueError as error:
            raise InvalidArgumentError(f"the work {text!r} contains a value that is not a number") from error
        if kind not in KINDS or len(numbers) != KINDS[kind]:
            raise InvalidArgumentError(
                f"the work {text!r} is not valid",
                hint="uniform:1:10, fixed:5, exponential:5 and lognormal:5:1 are examples, in milliseconds.",
            )
        if not all(math.isfinite(number) and number >= 0 for number in numbers):
            raise InvalidArgumentError(f"the times of the work {text!r} must not be negative")
        if kind == "uniform" and numbers[0] > numbers[1]:
            raise InvalidArgumentError(f"the work {text!r} ends before it begins")
        return cls(kind, numbers)

    def seconds(self, chance: random.Random) -> float:
        """Return a random time for one message, in seconds."""
        first = self.numbers[0]
        match self.kind:
            case "uniform":
                milliseconds = chance.uniform(*self.numbers)
            case "exponential":
                milliseconds = chance.expovariate(1 / first) if first else 0.0
            case "lognormal":
                milliseconds = first * math.exp(chance.gauss(0, self.numbers[1]))
            case _:
                milliseconds = first
        return milliseconds / 1_000
