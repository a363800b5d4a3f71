"""What needs an operator's attention in a queue, the most urgent first."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from spanmq.dashboard.standing import Standing
from spanmq.dashboard.wording import address, count, duration, short, since
from spanmq.model import FailingCause

# The age, in seconds, of the oldest visible message that the alert SpanmqMessagesWait allows.
OLDEST_SECONDS_MAX: Final = 300.0
# Failing messages are counted up to this number.
FAILING_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Problem:
    """A badge, a sentence, and the page on which something can be done about it; `rank` 0 is the most urgent."""

    rank: int
    badge: str
    words: str
    href: str


def problems_of(standing: Standing, causes: Sequence[FailingCause] = ()) -> list[Problem]:
    """Return the problems of a queue; `causes` are those of its failing messages, as far as they are known."""
    queue, found = standing.queue, list[Problem]()

    def add(rank: int, badge: str, words: str, path: str) -> None:
        found.append(Problem(rank, badge, words, address(path, queue=queue)))

    if standing.lacks_worker:
        words = f"{_messages(standing.visible)} waiting, and no worker receives."
        add(0, "no worker", words, "/queue/receivers")
    if standing.breaker_open_until is not None:
        last = max(
            (each for each in causes if each.last_failed_at is not None),
            key=lambda each: each.last_failed_at.timestamp() if each.last_failed_at else 0.0,
            default=None,
        )
        again = since(standing.breaker_open_until)
        words = f"A worker stopped receiving after failures in a row; it tries again {again}."
        if last is not None:
            words += f" Last error: {short(' '.join(filter(None, (last.error_class, last.error))))}"
        add(1, "breaker open", words, "/queue/receivers")
    if standing.blocked_groups:
        words = f"Groups that wait for a dead letter: {count(standing.blocked_groups)}."
        add(2, "groups blocked", words, "/queue/groups")
    if n := standing.failing:
        some = _messages(n) if n < FAILING_MAX else f"{count(FAILING_MAX)} or more messages"
        add(3, "failing", f"{some} waiting for another attempt after a failure.", "/queue/failing")
    if standing.is_paused and standing.backlog:
        add(4, "paused", f"{_messages(standing.backlog)} waiting until it is resumed.", "/queue/messages")
    elif (standing.oldest_ready_seconds or 0.0) > OLDEST_SECONDS_MAX:
        words = (
            f"The oldest visible message waits for {duration(standing.oldest_ready_seconds)};"
            f" the target is {duration(OLDEST_SECONDS_MAX)}."
        )
        add(5, "late", words, "/queue/messages")
    return found


def _messages(n: float | None) -> str:
    return f"{count(n)} message{'' if n == 1 else 's'}"
