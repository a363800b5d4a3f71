"""Notifications that a token, an access key or a queue of the SQS protocol changed, or that a move task was started."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import psycopg
from psycopg import AsyncConnection, sql

from spanmq.client.password import password_for, with_password
from spanmq.errors import ConnectionFailedError

logger = logging.getLogger("spanmq")

# Notified by spanmq.revoke_token(), spanmq.set_sqs_queue() and similar functions, without a payload.
CHANNEL: Final = "spanmq.access"
RETRY_SECONDS: Final = 1.0
# Any role may notify: however often that happens, tokens are looked up again only once in this time.
SPACE_SECONDS: Final = 1.0


async def heed_access(dsn: str, changed: Callable[[], None]) -> None:
    """Call `changed` after changes and when listening begins. Never returns, but can be cancelled.

    A change is reported at once, those of the second after it together. Without a connection no changes are
    reported; that is logged once.
    """
    is_known = False
    password = password_for(dsn)
    while True:
        try:
            address = await asyncio.to_thread(with_password, dsn, password)
            async with await AsyncConnection.connect(address, autocommit=True) as connection:
                await connection.execute(sql.SQL("listen {}").format(sql.Identifier(CHANNEL)))
                is_known = False
                # Changes before this point were not reported.
                changed()
                while True:
                    async for _ in connection.notifies(stop_after=1):  # all that have arrived
                        pass
                    changed()
                    await asyncio.sleep(SPACE_SECONDS)
        except (psycopg.Error, ConnectionFailedError) as error:
            if not is_known:
                logger.warning("listening_failed channel=%s error=%s", CHANNEL, type(error).__name__)
            is_known = True
        await asyncio.sleep(RETRY_SECONDS)
