"""Hearing at once that a token or a key was ended, or has changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import psycopg
from psycopg import AsyncConnection, sql

logger = logging.getLogger("spanmq")

# Said by pgmq.revoke_token() and its like; it carries nothing.
CHANNEL: Final = "spanmq.access"
RETRY_SECONDS: Final = 1.0


async def heed_access(dsn: str, changed: Callable[[], None]) -> None:
    """Call `changed` after each change, and when listening begins; never returns, but may be cancelled.

    While no connection can be had nothing is heard; that is logged once.
    """
    is_known = False
    while True:
        try:
            async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
                await connection.execute(sql.SQL("listen {}").format(sql.Identifier(CHANNEL)))
                is_known = False
                # What changed before was said to nobody.
                changed()
                async for _ in connection.notifies():
                    changed()
        except psycopg.Error as error:
            if not is_known:
                logger.warning("listening_failed channel=%s error=%s", CHANNEL, type(error).__name__)
            is_known = True
        await asyncio.sleep(RETRY_SECONDS)
