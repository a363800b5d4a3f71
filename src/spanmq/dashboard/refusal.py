"""What a page refuses."""

from __future__ import annotations


class RefusedError(Exception):
    """An answer other than what was asked for, in words for a person."""

    def __init__(self, status: int, title: str, words: str) -> None:
        super().__init__(title)
        self.status = status
        self.title = title
        self.words = words


def forbidden(verb: str, queue: str | None) -> RefusedError:
    """Say that the token has no such right, in the same words of queues that don't exist."""
    what = "all queues" if queue is None else f"queue {queue!r}"
    return RefusedError(403, "Not yours", f"Your token may not {verb} on {what}.")
