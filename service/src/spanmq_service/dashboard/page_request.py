"""One request of a page: its caller, the caller's rights, and the check that a form comes from these pages."""

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import Response

from spanmq_service.backend import Backend
from spanmq_service.guard.caller import Caller, OfQueue, Verb
from spanmq_service.http.failure import forbidden
from spanmq_service.http.request_origin import is_from_elsewhere

SESSION: Final = "spanmq_session"
CSRF_COOKIE: Final = "spanmq_csrf"
# How pages look, and after how many seconds they are updated, as chosen in the browser; the first is the default.
THEME: Final = "spanmq_theme"
THEMES: Final = {"system": "as the system has them", "light": "light", "dark": "dark"}
REFRESH: Final = "spanmq_refresh"
REFRESHES: Final = {
    "5": "every 5 seconds",
    "2": "every 2 seconds",
    "15": "every 15 seconds",
    "60": "every minute",
    "0": "never",
}
SESSION_SECONDS: Final = 12 * 3600
FIELDS_MAX: Final = 100
# The format of the token in our forms: 256 bits in 43 characters.
_CSRF_TOKEN: Final = re.compile(r"[\w-]{43}", re.ASCII)


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A request of HTTP, its caller, and the two cookies: the session's key and the browser's token."""

    http: Request
    backend: Backend
    caller: Caller | None
    key: str | None
    csrf_token: str

    def may(self, verb: Verb, queue: str | None) -> bool:
        """Return whether the caller has the verb."""
        return self.caller is not None and self.caller.may(verb, queue)

    def check(self, verb: Verb, queue: str | None) -> None:
        """Raise 403 unless the caller has the verb, the same whether the queue exists or not."""
        if not self.may(verb, queue):
            raise forbidden(verb, queue)

    def check_choice(self, choice: Mapping[str, object], *, is_shown: bool = False) -> None:
        """Raise 403 where the same choice of messages of the queue in the URL would be refused over HTTP."""
        if self.caller is None:
            raise forbidden("look", self.queue)
        self.caller.check_choice(self.queue, choice, is_shown=is_shown)

    def seen(self, records: Iterable[OfQueue]) -> list[OfQueue]:
        """Return the records of queues that the caller may look at."""
        return [] if self.caller is None else self.caller.seen(records)

    @property
    def queue(self) -> str:
        """Return the queue that the URL names: any name fits into a query string."""
        name = self.text("queue")
        if not name:
            raise RefusedError(400, "Which queue?", "The URL has no name of a queue.")
        return name

    def text(self, name: str, default: str = "") -> str:
        """Return a string parameter of the URL."""
        return self.http.query_params.get(name, default).replace("\0", "\N{REPLACEMENT CHARACTER}")

    def number(self, name: str, default: int, *, most: int = 2**63 - 1) -> int:
        """Return an integer parameter of the URL."""
        text = self.http.query_params.get(name)
        if text is None:
            return default
        if not re.fullmatch(r"\d{1,19}", text, re.ASCII) or int(text) > most:
            raise RefusedError(400, "No such number", f"{name} must be a number up to {most}.")
        return int(text)

    def notice(self, notices: Mapping[str, str]) -> str | None:
        """Return the result of a form: the URL contains its key and a number, not the text."""
        words = notices.get(self.text("done"))
        return None if words is None else words.format(n=f"{self.number('n', 0):,}")

    @property
    def theme(self) -> str:
        """Return the colors that were chosen in this browser: a key of THEMES."""
        return self._chosen(THEME, THEMES)

    @property
    def refresh(self) -> str:
        """Return the seconds between updates that were chosen in this browser: a key of REFRESHES."""
        return self._chosen(REFRESH, REFRESHES)

    def _chosen(self, name: str, choices: Mapping[str, str]) -> str:
        is_safe = self.http.url.scheme == "https"
        choice = self.http.cookies.get(cookie_name(name, is_safe=is_safe), "")
        return choice if choice in choices else next(iter(choices))

    @property
    def form_token(self) -> str:
        """Return the token in our forms, which other sites cannot know."""
        message = f"form\0{self.key or ''}"
        return hmac.new(self.csrf_token.encode(), message.encode(), hashlib.sha256).hexdigest()

    async def form(self) -> Mapping[str, str]:
        """Return the fields of a form; raises 403 unless it was sent by one of these pages."""
        kind = self.http.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/x-www-form-urlencoded":
            raise RefusedError(
                415, "The body is not a form", "Forms come as application/x-www-form-urlencoded."
            )
        body = await self.http.body()
        try:
            pairs = parse_qsl(
                body.decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="strict"
            )
        except ValueError as error:
            raise RefusedError(400, "The body is not a form", "The form can't be read.") from error
        fields = {name: value.replace("\0", "\N{REPLACEMENT CHARACTER}") for name, value in pairs}
        token = fields.pop("form_token", "")
        # Without the headers Origin and Sec-Fetch-Site only the form token is checked.
        is_ours = hmac.compare_digest(token.encode(), self.form_token.encode())
        if is_from_elsewhere(self.http.headers) or not is_ours:
            words = "The form is too old, or belongs to another page. Load the page again."
            raise RefusedError(403, "Sent from elsewhere", words)
        return fields

    def remember(
        self, response: Response, name: str, value: str | None, *, seconds: int | None = None
    ) -> None:
        """Set a cookie, which no script sees and no other site sends; None takes it away."""
        is_safe = self.http.url.scheme == "https"
        response.set_cookie(
            cookie_name(name, is_safe=is_safe),
            value or "",
            max_age=0 if value is None else seconds,
            path="/",
            secure=is_safe,
            httponly=True,
            samesite="strict",
        )


def cookie_name(name: str, *, is_safe: bool) -> str:
    """Return the name of a cookie; under TLS, one that other hosts of the domain cannot set."""
    return f"__Host-{name}" if is_safe else name


async def page_request_of(request: Request, backend: Backend) -> PageRequest:
    """Return a request with its caller and its cookies."""
    is_safe = request.url.scheme == "https"
    key = request.cookies.get(cookie_name(SESSION, is_safe=is_safe)) or None
    csrf_token = request.cookies.get(cookie_name(CSRF_COOKIE, is_safe=is_safe), "")
    caller = await backend.credentials.caller_of_session(key, request.scope)
    return PageRequest(
        request,
        backend,
        caller,
        key,
        csrf_token if _CSRF_TOKEN.fullmatch(csrf_token) else secrets.token_urlsafe(32),
    )


class RefusedError(Exception):
    """An answer other than the requested page, in words for a person."""

    def __init__(self, status: int, title: str, words: str) -> None:
        super().__init__(title)
        self.status = status
        self.title = title
        self.words = words
