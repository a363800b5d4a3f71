"""The SQL functions of sessions of people: their arguments, and what becomes of their rows. No I/O here."""

from __future__ import annotations

from spanmq import call as argument
from spanmq.call import Call, Seconds
from spanmq.message import Token
from spanmq.rows import flag
from spanmq.token_calls import first_token


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
