"""Traces of requests: FastAPI makes them where a tracer is configured; what of them is ours is here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from contextvars import copy_context
from typing import Any, Final, TypeVar

from spanmq import tracing

Result = TypeVar("Result")


def is_untraced(scope: MutableMapping[str, Any]) -> bool:
    """Tell whether a request is one that machines make every few seconds, about nothing."""
    path: str = scope.get("path", "")
    return path.startswith("/health/") or path == "/metrics"


# Not `logs`: they would hold what was refused, and with it a secret that stood in the wrong place.
REQUESTS: Final[Any] = {"exclude": is_untraced, "operation_spans": False, "logs": False}


def in_own_trace(call: Callable[[], Awaitable[Result]]) -> Callable[[], Awaitable[Result]]:
    """Give a call that belongs to this request's trace, whichever task makes it."""
    if not tracing.is_on():
        return call
    own = copy_context()

    async def run() -> Result:
        return await call()

    async def traced() -> Result:
        return await asyncio.get_running_loop().create_task(run(), context=own)

    return traced
