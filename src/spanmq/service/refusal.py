"""Refusals by the service itself; FastAPI passes them through wherever they are raised."""

from __future__ import annotations

from starlette.exceptions import HTTPException


class Refusal(HTTPException):
    """An error response; `code` is one of docs/guides/service.md."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        hint: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(status, detail=message)
        self.code = code
        self.message = message
        self.hint = hint
        self.retry_after = retry_after


def unauthorized(message: str) -> Refusal:
    """Return the refusal of a request without a valid token."""
    return Refusal(401, "unauthorized", message, hint="Send Authorization: Bearer TOKEN.")


def forbidden(verb: str, queue: str | None) -> Refusal:
    """Return the refusal of a request whose token lacks the verb, with the same message for queues that do
    not exist.
    """
    what = "the whole service" if queue is None else f"queue {queue!r}"
    return Refusal(403, "forbidden", f"this token may not {verb} on {what}")


def invalid(message: str) -> Refusal:
    """Return the refusal of a value that is not valid."""
    return Refusal(422, "invalid_argument", message)
