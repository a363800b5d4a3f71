"""The common shape of errors, and the status and code of each error.

    {"error": {"code": "queue_not_found", "message": "…", "hint": "…", "detail": "…"}}

The code is that of the client's error. What a driver or a server says of its own troubles is for
the log: it may name hosts, roles and statements.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from spanmq import errors

logger = logging.getLogger("spanmq.service")

# The first class in an error's method resolution order that is listed here counts. 503: try again later, the
# request was valid.
STATUS_OF: Final[dict[type[errors.SpanmqError], int]] = {
    errors.BodyTooLargeError: 413,
    errors.InvalidArgumentError: 422,
    errors.NotFoundError: 404,
    errors.NotPossibleError: 409,
    errors.ReceiverInUseError: 409,
    errors.NotKeptError: 409,
    errors.QueueBusyError: 503,
    errors.QueueFullError: 429,
    errors.DedupIdReusedError: 422,
    errors.MissingPrivilegeError: 403,
    errors.TransactionConflictError: 503,
    errors.StatementCancelledError: 503,
    errors.ServerExhaustedError: 503,
    errors.ServerReadOnlyError: 503,
    errors.ConnectionFailedError: 503,
    errors.ConnectionLostError: 503,
    errors.SchemaMissingError: 503,
    errors.SchemaVersionError: 503,
    errors.EncryptionError: 500,
    errors.ExtraNotInstalledError: 501,
    errors.NotSupportedByUpstreamError: 501,
    errors.SpanmqError: 500,
}
# Replaces the messages of the driver and the server.
MESSAGE_OF: Final[dict[type[errors.SpanmqError], str]] = {
    errors.ConnectionFailedError: "no connection to the database could be had: it is away, or all are taken",
    errors.ConnectionLostError: "the connection to the database was lost: whether it took effect is unknown",
    errors.ServerExhaustedError: "the database lacks a resource",
    errors.ServerReadOnlyError: "the database is read-only",
    errors.StatementCancelledError: "the database took too long; nothing was changed",
    errors.TransactionConflictError: "a conflict with concurrent transactions; nothing was changed",
    errors.MissingPrivilegeError: "the service itself lacks the right for that",
    errors.SchemaMissingError: "the service's database holds no queues",
    errors.SchemaVersionError: "the service's database is of another release",
    errors.ServerError: "the database reported an error",
}
RETRY_SECONDS: Final = 1
RETRY_AFTER: Final = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}
# The description of each status in OpenAPI.
DESCRIPTION_OF: Final = {
    400: "The request cannot be read",
    401: "The token is missing, unknown, expired or revoked",
    403: "The token does not allow that",
    404: "Not found",
    408: "The body took too long",
    409: "Not possible in the current state",
    413: "The body is too large",
    421: "Without tokens: the service answers under the names of its own machine only",
    422: "An argument is missing, unknown or invalid",
    429: "Too many requests or wrong secrets, or the queue is full",
    500: "Internal error",
    501: "The database or the installation lacks a part that this needs",
    503: "Temporarily unavailable",
}
CODES_OF_STATUS: Final = {404: "not_found", 405: "method_not_allowed", 400: "invalid_request"}


class Problem(Struct):
    """The body of an error response."""

    code: str
    message: str
    hint: str | None = None
    detail: str | None = None
    queue: str | None = None


class Failed(Struct):
    """The shape of all errors."""

    error: Problem


def kind_of(error: errors.SpanmqError) -> type[errors.SpanmqError]:
    """Return the class whose status an error has."""
    return next(kind for kind in type(error).__mro__ if kind in STATUS_OF)


def body_of(code: str, message: str, **more: Any) -> dict[str, Any]:
    """Return an error in the common shape."""
    return {"error": {"code": code, "message": message, **{k: v for k, v in more.items() if v}}}


def describe(error: errors.SpanmqError) -> tuple[int, dict[str, Any]]:
    """Return the status and the body for an error of the client."""
    status = STATUS_OF[kind_of(error)]
    said = next((MESSAGE_OF[kind] for kind in type(error).__mro__ if kind in MESSAGE_OF), None)
    if said is not None or status == 500:
        logger.warning("request_failed error=%s message=%r", type(error).__name__, error.message)
        return status, body_of(error.code, said or "the service could not do it")
    return status, body_of(error.code, error.message, detail=error.detail, queue=error.queue)


def answer(status: int, body: dict[str, Any], *, retry_after: int | None = None) -> Response:
    """Return the response for an error."""
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(body, status, headers)


class Refusal(HTTPException):
    """An error response; `code` is one of docs/guides/service.md."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        hint: str | None = None,
        where: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(status, detail=message)
        self.code = code
        self.message = message
        self.hint = hint
        # What is wrong with which value; an HTTPException has the message as its `detail`.
        self.where = where
        self.retry_after = retry_after


def unauthorized(message: str) -> Refusal:
    """Return the refusal of a request without a valid token."""
    return Refusal(401, "unauthorized", message, hint="Send Authorization: Bearer TOKEN.")


def forbidden(verb: str, queue: str | None) -> Refusal:
    """Return the refusal of a token that lacks the verb, the same whether the queue exists or not."""
    what = "the whole service" if queue is None else f"queue {queue!r}"
    return Refusal(403, "forbidden", f"this token may not {verb} on {what}")


def invalid(message: str) -> Refusal:
    """Return the refusal of a value that is not valid."""
    return Refusal(422, "invalid_argument", message)


async def _of_the_client(_: Request, error: Exception) -> Response:
    assert isinstance(error, errors.SpanmqError)
    status, body = describe(error)
    return answer(status, body, retry_after=RETRY_SECONDS if status in (429, 503) else None)


async def _of_http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if isinstance(error, Refusal):
        body = body_of(error.code, error.message, hint=error.hint, detail=error.where)
        return answer(error.status_code, body, retry_after=error.retry_after)
    code = CODES_OF_STATUS.get(error.status_code, "invalid_request")
    return answer(error.status_code, body_of(code, str(error.detail)))


async def _of_ourselves(request: Request, error: Exception) -> Response:
    logger.error("request_broke method=%s route=%r", request.method, request.url.path, exc_info=error)
    return answer(500, body_of("internal", "the service has a fault; see its log"))


# Answer all errors of an application in the common shape.
HANDLERS: Final[dict[Any, Callable[[Request, Exception], Awaitable[Response]]]] = {
    errors.SpanmqError: _of_the_client,
    HTTPException: _of_http,
    Exception: _of_ourselves,
}
