# Generated from src/spanmq/sessions_async.py by tools/generate_sync.py: change that file.

"""What a client does with the sessions of people in the service's pages; a part of Client."""

from __future__ import annotations

from spanmq import session_calls
from spanmq.call import Seconds
from spanmq.link import Link
from spanmq.message import Token
from spanmq.token_secret import hash_of, new_secret


class Sessions:
    """Who has shown a token's secret once has a session, and its key. The database has only hashes."""

    _link: Link

    def open_session(self, secret: str, *, seconds: Seconds = 43_200.0) -> str | None:
        """Give the key of a new session for the token of a secret, None if that is not good now.

        The session ends after so many seconds, or with its token or that secret.
        """
        key = new_secret()
        found = self._link.run(session_calls.open_session(hash_of(secret), hash_of(key), seconds))
        return None if found is None else key

    def check_session(self, key: str) -> Token | None:
        """Give the token of a session as it is now, None if the session has ended."""
        return self._link.run(session_calls.check_session(hash_of(key)))

    def close_session(self, key: str) -> bool:
        """End a session; tell whether it was there. Services notice within seconds."""
        return self._link.run(session_calls.close_session(hash_of(key)))
