"""The SQL functions of tokens and sessions: their arguments and rows, and their secrets. No I/O here."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import fields
from functools import partial
from typing import Any, Final

from spanmq import call as argument
from spanmq.call import Call, Delay, Rows, Seconds, flag, records
from spanmq.errors import InvalidArgumentError
from spanmq.message import Token


def create_token(
    name: str, secret_hash: str, queues: Iterable[str], verbs: Iterable[str], expires: Delay | None
) -> Call[Token]:
    """Make a token."""
    if isinstance(queues, str) or isinstance(verbs, str):
        raise InvalidArgumentError("queues and verbs of a token are lists")
    arguments = [
        argument.text("name", name),
        argument.text("secret_hash", secret_hash),
        argument.texts("queues", queues),
        argument.texts("verbs", verbs),
    ]
    if expires is not None:
        arguments.append(argument.moment("expires_at", expires))
    return Call("create_token", tuple(arguments), _first, native=True)


def list_tokens() -> Call[list[Token]]:
    """List them."""
    return Call("list_tokens", (), partial(records, _token), native=True)


def revoke_token(name: str) -> Call[bool]:
    """End one."""
    return Call("revoke_token", (argument.text("name", name),), flag, native=True)


def rotate_token(name: str, secret_hash: str, overlap: Seconds) -> Call[bool]:
    """Give one a new secret."""
    arguments = (
        argument.text("name", name),
        argument.text("secret_hash", secret_hash),
        argument.seconds("overlap", overlap),
    )
    return Call("rotate_token", arguments, flag, native=True)


def check_token(secret_hash: str) -> Call[Token | None]:
    """Look one up by its secret."""
    arguments = (argument.text("secret_hash", secret_hash),)
    return Call("check_token", arguments, first_token, native=True)


def first_token(rows: Rows) -> Token | None:
    """Read a token, or None if there is none."""
    return _first(rows) if rows.values else None


def _first(rows: Rows) -> Token:
    return _token(rows.records()[0])


def _token(row: dict[str, Any]) -> Token:
    return Token(**{field.name: row[field.name] for field in fields(Token)})


def open_session(secret_hash: str, key_hash: str, seconds: Seconds) -> Call[Token | None]:
    """Open one."""
    arguments = (
        argument.text("secret_hash", secret_hash),
        argument.text("key_hash", key_hash),
        argument.seconds("seconds", seconds),
    )
    return Call("open_session", arguments, first_token, native=True)


def check_session(key_hash: str) -> Call[Token | None]:
    """Look at one."""
    return Call("check_session", (argument.text("key_hash", key_hash),), first_token, native=True)


def close_session(key_hash: str) -> Call[bool]:
    """End one."""
    return Call("close_session", (argument.text("key_hash", key_hash),), flag, native=True)


# A word by which scanners of sources know what was left in them.
PREFIX: Final = "spanmq_"


def new_secret() -> str:
    """Give 256 random bits as text."""
    return PREFIX + secrets.token_urlsafe(32)


def hash_of(secret: str) -> str:
    """Give what the database has of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
