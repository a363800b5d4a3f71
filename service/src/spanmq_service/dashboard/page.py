"""Pages: their paths, the rights that they require, their templates, and the files that they use."""

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from spanmq.version import __version__
from spanmq_service.dashboard import formatting
from spanmq_service.dashboard.page_request import PageRequest
from spanmq_service.guard.caller import Verb
from spanmq_service.http.failure import forbidden

_templates: Final = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    # Escapes all values: names of queues, bodies and errors may contain anything.
    autoescape=True,
    undefined=StrictUndefined,
    auto_reload=False,
    trim_blocks=True,
    lstrip_blocks=True,
)
OURS: Final = Path(__file__).parent / "static"
# By the name in the URL: no other file is served.
FILES: Final = {"style.css": "text/css", "live.js": "text/javascript", "icon.svg": "image/svg+xml"}
FOR_EVER: Final = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class Page:
    """A path and the right that it requires.

    `verb` is the verb that the caller needs on the queue in the URL (`of_queue`), on all queues (`of_all`), or on any
    queue: then the page shows the queues that the caller may see. None: no right is required.
    """

    path: str
    answer: Callable[[PageRequest], Awaitable[Response]]
    verb: Verb | None = "look"
    of_queue: bool = False
    of_all: bool = False
    method: str = "GET"

    def check(self, request: PageRequest) -> None:
        """Raise 403 if the visitor may not, the same whether the queue exists or not."""
        if self.verb is None:
            return
        if self.of_queue:
            request.check(self.verb, request.queue)
        elif self.of_all:
            request.check(self.verb, None)
        if request.caller is None or self.verb not in request.caller.verbs:
            raise forbidden(self.verb, None)


def show(request: PageRequest, template: str, /, status: int = 200, **values: Any) -> Response:
    """Write a page; every template gets `request`."""
    return HTMLResponse(_templates.get_template(template).render(request=request, **values), status)


def show_form(request: PageRequest, template: str, problem: object = None, **values: Any) -> Response:
    """Write a page with a form, and the problem with what was typed into it, if there is one."""
    return show(request, template, 422 if problem else 200, problem=problem, **values)


def go(address: str) -> Response:
    """Send on to another page, after a form."""
    return RedirectResponse(address, 303)


@cache
def asset(name: str) -> tuple[bytes, str]:
    """Read a file, once; return its content and its version."""
    content = (OURS / name).read_bytes()
    return content, hashlib.sha256(content).hexdigest()[:12]


def address_of(name: str) -> str:
    """Return the URL of a file, which changes with its content: so it may be cached indefinitely."""
    return f"/assets/{name}?v={asset(name)[1]}"


async def send_asset(request: Request) -> Response:
    """Send a file; raises 404 if it does not exist."""
    name = request.path_params["name"]
    if name not in FILES:
        raise HTTPException(404)
    content, version = asset(name)
    headers = {
        "Cache-Control": FOR_EVER if request.query_params.get("v") == version else "no-cache",
        "X-Content-Type-Options": "nosniff",
        "Cross-Origin-Resource-Policy": "same-origin",
    }
    return Response(content, 200, headers, FILES[name])


_templates.globals.update(asset=address_of, version=__version__)
_templates.filters.update(formatting.FILTERS)
