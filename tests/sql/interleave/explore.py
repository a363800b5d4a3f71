"""All orders of the statements of some sessions, with few preemptions first.

The search is stateless: each order is a run from the beginning, as in CHESS (Musuvathi and Qadeer, PLDI 2007), whose
bound on preemptions this has too: most faults of concurrent programs need one or two.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Order:
    """The sessions that went on, choice by choice; after the last one the running session goes on."""

    prefix: tuple[int, ...] = ()
    preemptions: int = 0


Choices = list[tuple[list[int], int]]


def preferred(able: list[int], last: int | None) -> int:
    """Return the session that goes on if no other one comes between: the last one, else the first."""
    return last if last in able else able[0]


def chooser(order: Order) -> Callable[[list[int], int | None], int]:
    """Return the function that follows an order."""
    left = list(reversed(order.prefix))

    def choose(able: list[int], last: int | None) -> int:
        if left:
            wanted = left.pop()
            # A run may differ from the one from which the order was made: a lock is free a little earlier.
            return wanted if wanted in able else preferred(able, last)
        return preferred(able, last)

    return choose


def further(order: Order, choices: Choices, preemptions_max: int) -> list[Order]:
    """Return the orders that differ from a run by one choice behind its prefix."""
    result = []
    for place in range(len(order.prefix), len(choices)):
        able, chosen = choices[place]
        last = choices[place - 1][1] if place else None
        for other in able:
            if other == chosen:
                continue
            cost = order.preemptions + (last in able and other != last)
            if cost <= preemptions_max:
                prefix = (*(each for _, each in choices[:place]), other)
                result.append(Order(prefix, cost))
    return result
