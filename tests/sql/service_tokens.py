"""Tokens with what the service asks of them, over one connection."""

from __future__ import annotations

from spanmq.client import Client
from spanmq.client import call as argument
from spanmq.client._async.admin import hash_of, new_secret
from spanmq.client._sync.admin import Tokens
from spanmq.client.call import Argument, Call, first, flag
from spanmq.model import Token


class ServiceTokens:
    """The tokens of a client, and the calls that only the service makes."""

    def __init__(self, client: Client) -> None:
        self.own: Tokens = client.admin.tokens
        self._client = client
        self.create, self.rotate = self.own.create, self.own.rotate
        self.revoke, self.list = self.own.revoke, self.own.list

    def check(self, secret: str) -> Token | None:
        """Return the token of a secret."""
        return self._ask("check_token", argument.text("secret_hash", hash_of(secret)))

    def check_session(self, key: str) -> Token | None:
        """Return the token of a session."""
        return self._ask("check_session", argument.text("key_hash", hash_of(key)))

    def open_session(self, secret: str, *, seconds: float = 43_200.0) -> str | None:
        """Return the key of a new session."""
        key = new_secret()
        secret_hash = argument.text("secret_hash", hash_of(secret))
        key_hash, ends = argument.text("key_hash", hash_of(key)), argument.seconds("seconds", seconds)
        return None if self._ask("open_session", secret_hash, key_hash, ends) is None else key

    def close_session(self, key: str) -> bool:
        """End a session."""
        arguments = (argument.text("key_hash", hash_of(key)),)
        return self._client.admin.run(Call("close_session", arguments, flag, native=True))

    def _ask(self, function: str, *arguments: Argument) -> Token | None:
        return self._client.admin.run(Call(function, arguments, first(Token), native=True))
