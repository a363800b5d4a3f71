"""What the service refuses by itself; FastAPI passes it through wherever it is raised."""

from __future__ import annotations

from starlette.exceptions import HTTPException


class Refusal(HTTPException):
    """An answer other than what was asked for; `code` is one of docs/guides/service.md."""

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
    """Say that nobody knows who asks."""
    return Refusal(401, "unauthorized", message, hint="Send Authorization: Bearer TOKEN.")


def forbidden(verb: str, queue: str | None) -> Refusal:
    """Say that the token has no such right, in the same words of queues that don't exist."""
    what = "the whole service" if queue is None else f"queue {queue!r}"
    return Refusal(403, "forbidden", f"this token may not {verb} on {what}")


def invalid(message: str) -> Refusal:
    """Return the refusal of a value that is not valid."""
    return Refusal(422, "invalid_argument", message)
