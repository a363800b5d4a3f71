"""The handler of a worker within which a call is made: whether it is to end, and what it reports of its progress."""

from contextvars import ContextVar
from numbers import Real
from typing import Final, Protocol

from spanmq.errors import HandlerCancelledError, InvalidArgumentError

# The longest note of a progress, in characters.
NOTE_MAX: Final = 200


class HandlerCall(Protocol):
    """One call of a handler."""

    is_cancelled: bool
    is_over: bool

    def report(self, share: float, note: str) -> None:
        """Take a progress, from any thread."""


CURRENT_HANDLER: Final[ContextVar[HandlerCall | None]] = ContextVar("spanmq current handler", default=None)


def cancelled() -> bool:
    """Return whether the handler that calls this is to end: its message was cancelled, or its lease is lost.

    A plain function asks; an async one is cancelled anyway. False outside of a handler.
    """
    call = CURRENT_HANDLER.get()
    # Tasks that a handler began may run on after it.
    return call is not None and call.is_cancelled and not call.is_over


def progress(share: float, note: str = "") -> None:
    """Report how far the handler that calls this is: a `share` from 0 to 1, and a `note` of up to 200 characters.

    `client.health.workers()` and the dashboard show the last one while the handler runs. The worker writes it at most
    once a second; the call itself waits for nothing. Nothing happens outside of a handler. Raises InvalidArgumentError
    for a share or a note that is not valid.
    """
    if isinstance(share, bool) or not isinstance(share, Real) or not 0 <= share <= 1:
        raise InvalidArgumentError(f"the share of a progress is a number from 0 to 1, got {share!r}")
    if not isinstance(note, str) or len(note) > NOTE_MAX:
        raise InvalidArgumentError(
            f"the note of a progress is a string of at most {NOTE_MAX} characters, got {str(note)[:NOTE_MAX]!r}"
        )
    # A NUL, and halves of a surrogate pair.
    if "\0" in note or note.encode(errors="ignore").decode() != note:
        raise InvalidArgumentError(f"PostgreSQL can't store the note of this progress: {note!r}")
    call = CURRENT_HANDLER.get()
    if call is not None and not call.is_over:
        call.report(float(share), note)


def refuse_if_cancelled() -> None:
    """Raise HandlerCancelledError within a handler that is to end."""
    if cancelled():
        raise HandlerCancelledError(
            "the message of this handler was cancelled, or its lease is lost", hint="End the handler."
        )
