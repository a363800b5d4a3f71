"""Notifications that a token, an access key or a queue of the SQS protocol changed, or that a move task was started."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from spanmq.client import AsyncClient
from spanmq.errors import SpanmqError

logger = logging.getLogger("spanmq")

# Notified by spanmq.revoke_token(), spanmq.set_sqs_queue() and similar functions, without a payload.
CHANNEL: Final = "spanmq.access"
RETRY_SECONDS: Final = 1.0
# Any role may notify: however often that happens, tokens are looked up again only once in this time.
SPACE_SECONDS: Final = 1.0


async def heed_access(client: AsyncClient, changed: Callable[[], None]) -> None:
    """Call `changed` after changes and when listening begins. Never returns, but can be cancelled.

    A change is reported at once, those of the second after it together. Without a connection no changes are
    reported; that is logged once.
    """
    is_known = False
    rung = asyncio.Event()

    def ring(number: int | None) -> None:
        nonlocal is_known
        # Changes before it listens were not reported.
        is_known = is_known and number is not None
        rung.set()

    async def report() -> None:
        while True:
            await rung.wait()
            rung.clear()
            changed()
            await asyncio.sleep(SPACE_SECONDS)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(report())
        while True:
            try:
                await client.admin.notifications.hear(CHANNEL, ring)
            except SpanmqError as error:
                if not is_known:
                    logger.warning("listening_failed channel=%s error=%s", CHANNEL, type(error).__name__)
                is_known = True
            await asyncio.sleep(RETRY_SECONDS)
