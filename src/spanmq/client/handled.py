"""The handler of a worker within which a call is made, and whether it is to end."""

from contextvars import ContextVar
from typing import Final, Protocol

from spanmq.errors import HandlerCancelledError


class Handled(Protocol):
    """One call of a handler."""

    is_cancelled: bool
    is_over: bool


HANDLED: Final[ContextVar[Handled | None]] = ContextVar("spanmq handled", default=None)


def cancelled() -> bool:
    """Return whether the handler that calls this is to end: its message was cancelled, or its lease is lost.

    A plain function asks; an async one is cancelled anyway. False outside of a handler.
    """
    handled = HANDLED.get()
    # Tasks that a handler began may run on after it.
    return handled is not None and handled.is_cancelled and not handled.is_over


def refuse_if_cancelled() -> None:
    """Raise HandlerCancelledError within a handler that is to end."""
    if cancelled():
        raise HandlerCancelledError(
            "the message of this handler was cancelled, or its lease is lost", hint="End the handler."
        )
