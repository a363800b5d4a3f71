# Generated from src/spanmq/dead_letters_async.py by tools/generate_sync.py: change that file.

"""What a client does with dead letters; a part of Client."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from spanmq import dead_letter_calls
from spanmq.body import Codec, Headers
from spanmq.call import Seconds
from spanmq.dead_letter_calls import UNCHANGED, Filters
from spanmq.link import Link
from spanmq.message import DeadLetter, DeadLetterCount, Redriven


class DeadLetters:
    """What failed for good: look at it, put it back, discard it.

    The filters are alike in all methods; None is any. `error` is a regular expression, without regard to
    case, `since` and `until` say when they died, `payload` is what their bodies contain. `redriven` False:
    those that wait for somebody; True: those that were put back; None: both.
    """

    _link: Link
    _codec: Codec

    def dead_letters(
        self,
        queue: str | None = None,
        *,
        category: str | None = None,
        error: str | None = None,
        error_class: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        payload: Mapping[str, Any] | None = None,
        redriven: bool | None = False,
        after: int = 0,
        quantity: int = 100,
        body_bytes_max: int | None = None,
    ) -> list[DeadLetter]:
        """Look at the dead letters of a queue, or of all that one may see, in the order of their deaths.

        A page ends after `quantity`; the next one begins `after` the last `dead_letter_id`. Of a body or
        headers that take more than `body_bytes_max` bytes comes `{"spanmq.cut": bytes}`.
        """
        filters = Filters(category, error, error_class, since, until, payload)
        return self._link.run(
            dead_letter_calls.dead_letters(
                self._codec, queue, filters, redriven, after, quantity, body_bytes_max
            )
        )

    def dead_letters_of(
        self, queue: str, message_id: int, *, body_bytes_max: int | None = None
    ) -> list[DeadLetter]:
        """Give the dead letters that a message became, the first one first."""
        return self._link.run(
            dead_letter_calls.dead_letters_of(self._codec, queue, message_id, body_bytes_max)
        )

    def count_dead_letters(self, queue: str | None = None) -> list[DeadLetterCount]:
        """Count those that wait, by queue and category; costs the same whatever their number."""
        return self._link.run(dead_letter_calls.count_dead_letters(queue))

    def redrive(
        self,
        queue: str,
        *,
        category: str | None = None,
        error: str | None = None,
        error_class: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        payload: Mapping[str, Any] | None = None,
        quantity: int = 1_000,
        rate: float | None = None,
        delay: Seconds = 0.0,
        dry_run: bool = False,
    ) -> list[Redriven]:
        """Put up to `quantity` dead letters back into their queue, the lowest ids first; none twice.

        They are visible after `delay` seconds, with a `rate` so many a second from then on. They keep their
        ids and their history, their attempts begin anew. With `dry_run` nothing is done; the list is what
        would be.
        """
        filters = Filters(category, error, error_class, since, until, payload)
        return self._link.run(
            dead_letter_calls.redrive(self._codec, queue, filters, quantity, rate, delay, dry_run)
        )

    def redrive_message(
        self,
        queue: str,
        message_id: int,
        *,
        body: object = UNCHANGED,
        headers: Headers | None = None,
        delay: Seconds = 0.0,
    ) -> int:
        """Put one dead letter back, repaired if a body or headers are given; give its id.

        Raises DeadLetterNotFoundError if none of this id waits.
        """
        return self._link.run(
            dead_letter_calls.redrive_message(self._codec.of(queue), queue, message_id, body, headers, delay)
        )

    def purge_dead_letters(
        self,
        queue: str,
        *,
        category: str | None = None,
        error: str | None = None,
        error_class: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        payload: Mapping[str, Any] | None = None,
        redriven: bool | None = False,
        quantity: int = 1_000,
        dry_run: bool = False,
    ) -> int:
        """Delete up to `quantity` dead letters for good and give their number; with `dry_run` only count."""
        filters = Filters(category, error, error_class, since, until, payload)
        return self._link.run(
            dead_letter_calls.purge_dead_letters(self._codec, queue, filters, redriven, quantity, dry_run)
        )
