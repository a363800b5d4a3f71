"""What pages stand on: shapes of what the service has. Neither imports the other: `serve` joins them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from starlette.types import Scope

    from spanmq.client import AsyncClient
    from spanmq.errors import SpanmqError

Verb = Literal["send", "receive", "look", "manage"]


class Caller(Protocol):
    """Who looks at a page."""

    @property
    def name(self) -> str:
        """Give the name of his token; empty is everybody."""

    @property
    def verbs(self) -> frozenset[str]:
        """Give what he may do with some queue."""

    def may(self, verb: Verb, queue: str | None) -> bool:
        """Tell whether he may do that; None is what concerns all queues."""


class Sessions(Protocol):
    """Who has signed in."""

    @property
    def are_needed(self) -> bool:
        """Tell whether one must sign in; if not, everybody may do everything."""

    async def open(self, secret: str, seconds: float, scope: Scope) -> str | None:
        """Return the key of a new session of a token, None if its secret is wrong."""

    async def caller_of(self, key: str | None, scope: Scope) -> Caller | None:
        """Give who asks, None if nobody knows."""

    async def close(self, key: str) -> None:
        """End a session."""


class Patterns(Protocol):
    """Limits for calls with regular expressions."""

    def searching(
        self, caller: Caller | None, pattern: str | None
    ) -> AbstractAsyncContextManager[AsyncClient]:
        """Lend a client for a search; raises InvalidArgumentError for a costly one."""

    def acting(
        self, caller: Caller | None, *patterns: str | None
    ) -> AbstractAsyncContextManager[AsyncClient]:
        """Lend a client for an action; raises InvalidArgumentError for a costly pattern."""


class Behind(Protocol):
    """What stands behind all requests. Its client gives bodies of messages as RawJson."""

    @property
    def client(self) -> AsyncClient:
        """Give the client, which is open."""

    @property
    def sessions(self) -> Sessions:
        """Give who has signed in."""

    @property
    def patterns(self) -> Patterns:
        """Return the limits for calls with regular expressions."""

    def explain(self, error: SpanmqError) -> tuple[int, str]:
        """Give the status and the words for an error: nothing in them is a secret."""
