"""Traces of requests: FastAPI creates them if a tracer is configured; their settings are here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from contextvars import copy_context
from typing import Any, Final, TypeVar

from spanmq import tracing

Result = TypeVar("Result")


def is_untraced(scope: MutableMapping[str, Any]) -> bool:
    """Return whether a request is a periodic check, which is not traced."""
    path: str = scope.get("path", "")
    return path.startswith("/health/") or path == "/metrics"


# Without `logs`: they would contain refused values, which may be misplaced secrets.
REQUESTS: Final[Any] = {"exclude": is_untraced, "operation_spans": False, "logs": False}


def in_own_trace(call: Callable[[], Awaitable[Result]]) -> Callable[[], Awaitable[Result]]:
    """Return a call that belongs to this request's trace, whichever task runs it."""
    if not tracing.is_on():
        return call
    own = copy_context()

    async def run() -> Result:
        return await call()

    async def traced() -> Result:
        return await asyncio.get_running_loop().create_task(run(), context=own)

    return traced
