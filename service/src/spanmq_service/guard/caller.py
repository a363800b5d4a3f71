"""Callers and their rights."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Final, Literal, Protocol, TypeVar

from spanmq.model import AccessKey, folded
from spanmq_service.http.failure import forbidden

Verb = Literal["send", "receive", "look", "manage"]
# Filters of messages and dead letters that a caller without `look` may not use; others are times and ids.
CONTENTS: Final = ("task", "category", "error", "error_class", "payload", "where")
VERBS: Final[tuple[Verb, ...]] = ("send", "receive", "look", "manage")


class _OfQueue(Protocol):
    @property
    def queue(self) -> str | None: ...


OfQueue = TypeVar("OfQueue", bound=_OfQueue)


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller and its rights; names of queues are compared without regard to case, as in the database."""

    name: str
    queues: tuple[str, ...]
    verbs: frozenset[str]
    expires_at: datetime | None = None

    def may(self, verb: Verb, queue: str | None) -> bool:
        """Return whether the caller has the verb for a queue, or with None for all queues, which needs `*`."""
        if verb not in self.verbs:
            return False
        if "*" in self.queues:
            return True
        return queue is not None and any(_fits(pattern, queue) for pattern in self.queues)

    def check(self, verb: Verb, queue: str | None) -> None:
        """Raise 403 if the caller lacks the verb, with the same message whether the queue exists or not."""
        if not self.may(verb, queue):
            raise forbidden(verb, queue)

    def check_choice(self, queue: str, choice: Mapping[str, object], *, is_shown: bool = False) -> None:
        """Raise 403 if the caller may act on messages of a queue, but not look, and this choice of them requires it.

        How many match a choice by content or failure shows something of both, also what the act returns.
        `is_shown`: the act shows contents.
        """
        if is_shown or any(choice.get(name) is not None for name in CONTENTS):
            self.check("look", queue)

    def seen(self, records: Iterable[OfQueue]) -> list[OfQueue]:
        """Return the records of queues that the caller may look at."""
        return [record for record in records if self.may("look", record.queue)]


IDENTITY: Final = "spanmq.identity"
EVERYBODY: Final = Caller("", ("*",), frozenset(VERBS))


@lru_cache(maxsize=4096)
def _pattern(text: str) -> re.Pattern[str]:
    # Only * is special: brackets and question marks are literal.
    return re.compile(".*".join(map(re.escape, folded(text).split("*"))), re.DOTALL)


def _fits(pattern: str, queue: str) -> bool:
    return _pattern(pattern).fullmatch(folded(queue)) is not None


def caller_of_key(key: AccessKey) -> Caller:
    """Return the caller that an access key stands for."""
    return Caller(key.access_key_id, tuple(key.queues), frozenset(key.verbs))
