"""How long it takes to handle a message."""

import math
import random
from dataclasses import dataclass
from typing import Final, Self

from spanmq.errors import InvalidArgumentError

# The kinds, and how many numbers (milliseconds) each takes.
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
        """Read it; raises InvalidArgumentError."""
        kind, *parts = text.split(":")
        try:
            numbers = tuple(float(part) for part in parts)
        except ValueError as error:
            raise InvalidArgumentError(f"the work {text!r} holds what is no number") from error
        if kind not in KINDS or len(numbers) != KINDS[kind]:
            raise InvalidArgumentError(
                f"there is no work {text!r}",
                hint="uniform:1:10, fixed:5, exponential:5 and lognormal:5:1 are works, in milliseconds.",
            )
        if not all(math.isfinite(number) and number >= 0 for number in numbers):
            raise InvalidArgumentError(f"the times of the work {text!r} must not be negative")
        if kind == "uniform" and numbers[0] > numbers[1]:
            raise InvalidArgumentError(f"the work {text!r} ends before it begins")
        return cls(kind, numbers)

    def seconds(self, chance: random.Random) -> float:
        """Draw the time of one message."""
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
