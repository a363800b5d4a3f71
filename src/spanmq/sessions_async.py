"""What a client does with the sessions of people in the service's pages; a part of AsyncClient."""

from __future__ import annotations

from spanmq import session_calls
from spanmq.call import Seconds
from spanmq.link_async import AsyncLink
from spanmq.message import Token
from spanmq.token_secret import hash_of, new_secret


class AsyncSessions:
    """Who has shown a token's secret once has a session, and its key. The database has only hashes."""

    _link: AsyncLink

    async def open_session(self, secret: str, *, seconds: Seconds = 43_200.0) -> str | None:
        """Give the key of a new session for the token of a secret, None if that is not good now.

        The session ends after so many seconds, or with its token or that secret.
        """
        key = new_secret()
        found = await self._link.run(session_calls.open_session(hash_of(secret), hash_of(key), seconds))
        return None if found is None else key

    async def check_session(self, key: str) -> Token | None:
        """Give the token of a session as it is now, None if the session has ended."""
        return await self._link.run(session_calls.check_session(hash_of(key)))

    async def close_session(self, key: str) -> bool:
        """End a session; tell whether it was there. Services notice within seconds."""
        return await self._link.run(session_calls.close_session(hash_of(key)))
