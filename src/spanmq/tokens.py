# Generated from src/spanmq/tokens_async.py by tools/generate_sync.py: change that file.

"""What a client does with tokens and sessions of the pages; parts of Client."""

from __future__ import annotations

from collections.abc import Iterable

from spanmq import token_calls
from spanmq.call import Delay, Seconds
from spanmq.errors import TokenNotFoundError
from spanmq.link import Link
from spanmq.message import Token
from spanmq.token_calls import hash_of, new_secret


class Tokens:
    """Who may do what over HTTP. The database has only hashes: a secret is shown once."""

    _link: Link

    def create_token(
        self, name: str, *, queues: Iterable[str], verbs: Iterable[str], expires: Delay | None = None
    ) -> str:
        """Make a token and give its secret, which nobody can look up again.

        `queues` are patterns of names, in which * stands for any characters; `verbs` are of send, receive,
        look and manage. `expires` is seconds, a timedelta or the moment itself; None: never.
        """
        secret = new_secret()
        self._link.run(token_calls.create_token(name, hash_of(secret), queues, verbs, expires))
        return secret

    def list_tokens(self) -> list[Token]:
        """List the tokens by name, those that have expired too."""
        return self._link.run(token_calls.list_tokens())

    def rotate_token(self, name: str, *, overlap: Seconds = 0.0) -> str:
        """Give a token a new secret; the one before is good for `overlap` seconds more.

        Raises TokenNotFoundError if there is none of this name.
        """
        secret = new_secret()
        if not self._link.run(token_calls.rotate_token(name, hash_of(secret), overlap)):
            raise TokenNotFoundError(f"there is no token {name!r}")
        return secret

    def revoke_token(self, name: str) -> bool:
        """End a token; tell whether it was there. Services hear of it at once."""
        return self._link.run(token_calls.revoke_token(name))

    def check_token(self, secret: str) -> Token | None:
        """Give the token of a secret if it is good now."""
        return self._link.run(token_calls.check_token(hash_of(secret)))


class Sessions:
    """Who has shown a token's secret once has a session, and its key. The database has only hashes."""

    _link: Link

    def open_session(self, secret: str, *, seconds: Seconds = 43_200.0) -> str | None:
        """Give the key of a new session for the token of a secret, None if that is not good now.

        The session ends after so many seconds, or with its token or that secret.
        """
        key = new_secret()
        found = self._link.run(token_calls.open_session(hash_of(secret), hash_of(key), seconds))
        return None if found is None else key

    def check_session(self, key: str) -> Token | None:
        """Give the token of a session as it is now, None if the session has ended."""
        return self._link.run(token_calls.check_session(hash_of(key)))

    def close_session(self, key: str) -> bool:
        """End a session; tell whether it was there. Services notice within seconds."""
        return self._link.run(token_calls.close_session(hash_of(key)))
