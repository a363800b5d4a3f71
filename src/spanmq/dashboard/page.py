"""Pages: their paths, the rights that they require, and their templates."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, RedirectResponse, Response

from spanmq import __version__
from spanmq.dashboard import wording
from spanmq.dashboard.asset import address_of
from spanmq.dashboard.visit import Visit, forbidden
from spanmq.service.caller import Verb

_templates: Final = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    # Escapes all values: names of queues, bodies and errors may contain anything.
    autoescape=True,
    undefined=StrictUndefined,
    auto_reload=False,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.globals.update(asset=address_of, version=__version__)
_templates.filters.update(wording.FILTERS)


@dataclass(frozen=True, slots=True)
class Page:
    """A path and the right that it requires.

    `verb` is the verb that the caller needs on the queue in the URL (`of_queue`), or on any queue: then the
    page shows the queues that the caller may see. None: no right is required.
    """

    path: str
    answer: Callable[[Visit], Awaitable[Response]]
    verb: Verb | None = "look"
    of_queue: bool = False
    method: str = "GET"

    def check(self, visit: Visit) -> None:
        """Raise 403 if the visitor may not, the same whether the queue exists or not."""
        if self.verb is None:
            return
        if self.of_queue and not visit.may(self.verb, visit.queue):
            raise forbidden(self.verb, visit.queue)
        if visit.caller is None or self.verb not in visit.caller.verbs:
            raise forbidden(self.verb, None)


def show(visit: Visit, template: str, /, status: int = 200, **values: Any) -> Response:
    """Write a page; every template gets `visit`."""
    return HTMLResponse(_templates.get_template(template).render(visit=visit, **values), status)


def go(address: str) -> Response:
    """Send on to another page, after a form."""
    return RedirectResponse(address, 303)
