"""The interfaces of the service that the pages use. Neither imports the other: `serve` joins them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from starlette.types import Scope

    from spanmq.client import AsyncClient
    from spanmq.errors import SpanmqError

Verb = Literal["send", "receive", "look", "manage"]


class Caller(Protocol):
    """The caller of a page."""

    @property
    def name(self) -> str:
        """Return the name of the token; empty without tokens."""

    @property
    def verbs(self) -> frozenset[str]:
        """Return the verbs that the caller has on at least one queue."""

    def may(self, verb: Verb, queue: str | None) -> bool:
        """Return whether the caller has the verb; with None, on all queues."""


class Credentials(Protocol):
    """The sessions of signed-in callers."""

    @property
    def are_needed(self) -> bool:
        """Return whether callers must sign in; if not, every caller has all rights."""

    async def open_session(self, secret: str, seconds: float, scope: Scope) -> str | None:
        """Return the key of a new session of a token, None if its secret is wrong."""

    async def caller_of_session(self, key: str | None, scope: Scope) -> Caller | None:
        """Return the caller; None if the key is not valid."""

    async def close_session(self, key: str) -> None:
        """End a session."""


class Patterns(Protocol):
    """Limits for calls with regular expressions and JSON paths."""

    def searching(
        self, caller: Caller | None, pattern: str | None
    ) -> AbstractAsyncContextManager[AsyncClient]:
        """Lend a client for a search; raises InvalidArgumentError for a costly one."""

    def acting(
        self,
        caller: Caller | None,
        *patterns: str | None,
        trial: Callable[[AsyncClient], Awaitable[object]] | None = None,
    ) -> AbstractAsyncContextManager[AsyncClient]:
        """Lend a client for an action; raises InvalidArgumentError for a costly pattern or trial."""


class Behind(Protocol):
    """The backend of all requests. Its client returns bodies of messages as RawJson."""

    @property
    def client(self) -> AsyncClient:
        """Return the open client."""

    @property
    def credentials(self) -> Credentials:
        """Return the sessions."""

    @property
    def patterns(self) -> Patterns:
        """Return the limits for calls with regular expressions."""

    def explain(self, error: SpanmqError) -> tuple[int, str]:
        """Return the status and the message for an error, which contains no secrets."""
