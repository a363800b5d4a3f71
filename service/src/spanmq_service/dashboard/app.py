"""The pages as one application: routes, common headers, and error pages."""

import logging
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from spanmq.client.calls import ACTOR
from spanmq.errors import QueueNotFoundError, SpanmqError
from spanmq_service.backend import Backend
from spanmq_service.dashboard import (
    changes,
    dead_letters,
    failing,
    figures,
    message,
    messages,
    policies,
    queue,
    queues,
    repair,
    schedules,
    search,
    session,
    tasks,
    workers,
)
from spanmq_service.dashboard.page import Page, go, send_asset, show
from spanmq_service.dashboard.page_request import (
    CSRF_COOKIE,
    PageRequest,
    RefusedError,
    cookie_name,
    page_request_of,
)
from spanmq_service.http.failure import describe
from spanmq_service.http.request_origin import is_named_here

logger = logging.getLogger("spanmq.dashboard")

# A line a noun.
PAGES: Final[tuple[Page, ...]] = (
    *session.PAGES,
    *queues.PAGES,
    *queue.PAGES,
    *figures.PAGES,
    *message.PAGES,
    *messages.PAGES,
    *search.PAGES,
    *changes.PAGES,
    *dead_letters.PAGES,
    *failing.PAGES,
    *repair.PAGES,
    *policies.PAGES,
    *schedules.PAGES,
    *workers.PAGES,
    *tasks.PAGES,
)
HEADERS: Final = {
    # Only scripts from this server, no other origins, no frames.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    # Not no-referrer: it takes the origin from forms, too.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
# A header of the script that refreshes a page: it must not be redirected to another page.
LIVE: Final = "x-spanmq-live"


def pages(backend: Backend) -> list[Route]:
    """Return the routes of all pages."""
    return [
        *(Route(page.path, _answering(page, backend), methods=[page.method]) for page in PAGES),
        Route("/assets/{name}", send_asset, methods=["GET"]),
        UnknownPage("/{path:path}", _answering(Page("/{path:path}", _unknown, verb=None), backend)),
    ]


class UnknownPage(Route):
    """Any other address that a browser asks for; programs get the service's own answer."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match what accepts HTML and is none of the service's routes."""
        accepted = Headers(scope=scope).get("accept", "") if scope["type"] == "http" else ""
        if "text/html" not in accepted or scope["path"].startswith("/v1/"):
            return Match.NONE, {}
        return super().matches(scope)


async def _unknown(request: PageRequest) -> Response:
    raise RefusedError(404, "No such page", f"This site has no page {request.http.url.path}.")


def _answering(page: Page, backend: Backend) -> Callable[[Request], Awaitable[Response]]:
    async def answer(http: Request) -> Response:
        request = PageRequest(http, backend, None, None, "")
        try:
            _check_host(http, backend)
            request = await page_request_of(http, backend)
            response = await _page(page, request)
        except RefusedError as refusal:
            response = _refuse(refusal, request)
        except HTTPException as error:
            # The service's: a right is missing; or too much at once, too large, too slow.
            title, words = ("Not yours" if error.status_code == 403 else "Not now"), str(error.detail)
            response = _refuse(RefusedError(error.status_code, title, words[:1].upper() + words[1:]), request)
        except QueueNotFoundError as error:
            words = (
                f"{error.message[:1].upper()}{error.message[1:]}. If it was dropped, Changes shows by whom."
            )
            response = _refuse(RefusedError(404, "No such queue", words), request)
        except SpanmqError as error:
            status, body = describe(error)
            words = body["error"]["message"]
            response = _refuse(RefusedError(status, "That did not work", words), request)
        except ClientDisconnect:
            return Response(status_code=400)  # which no client reads
        except Exception:
            logger.exception("page_broke path=%r", page.path)
            response = _refuse(RefusedError(500, "A fault of ours", "The service's log tells more."), request)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        is_safe = http.url.scheme == "https"
        if (
            request.csrf_token
            and http.cookies.get(cookie_name(CSRF_COOKIE, is_safe=is_safe)) != request.csrf_token
        ):
            request.remember(response, CSRF_COOKIE, request.csrf_token)
        return response

    return answer


async def _page(page: Page, request: PageRequest) -> Response:
    if page.verb is not None and request.caller is None:
        if page.method == "GET" and LIVE not in request.http.headers:
            here = request.http.url
            return go(f"/sign-in?next={quote(f'{here.path}?{here.query}' if here.query else here.path)}")
        raise RefusedError(401, "Signed out", "Your session has ended. Sign in again.")
    page.check(request)
    name = request.caller.name if request.caller is not None else ""
    ACTOR.set(f"dashboard, token {name}" if name else "dashboard")
    return await page.answer(request)


def _refuse(refusal: RefusedError, request: PageRequest) -> Response:
    return show(request, "refusal.html", refusal.status, refusal=refusal)


def _check_host(request: Request, backend: Backend) -> None:
    # Without sign-in, a foreign page whose host name resolves to this machine would have all rights.
    if backend.credentials.are_needed or is_named_here(request.headers.get("host")):
        return
    raise RefusedError(421, "Not by this name", "Without tokens these pages answer to localhost only.")
