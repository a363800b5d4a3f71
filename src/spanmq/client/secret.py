"""Secrets of tokens and access keys: made here, stored by the database as hashes. No I/O here."""

import hashlib
import secrets
from collections.abc import Iterable
from string import ascii_uppercase, digits
from typing import Final

from spanmq.client import argument
from spanmq.client.argument import Argument, Delay, optional
from spanmq.errors import InvalidArgumentError

# The beginning of each secret, by which scanners of sources find it.
PREFIX: Final = "spanmq_"
ALL_VERBS: Final = ("send", "receive", "look", "manage")


def hash_of(secret: str) -> str:
    """Return what the database stores of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def new_secret() -> str:
    """Return the secret of a new token."""
    return PREFIX + secrets.token_urlsafe(32)


def new_access_key() -> tuple[str, str]:
    """Return the id and the secret of a new access key, as SQS's clients expect them."""
    letters = ascii_uppercase + digits
    return "SPANMQ" + "".join(secrets.choice(letters) for _ in range(14)), secrets.token_urlsafe(30)


def rights(
    kind: str, queues: Iterable[str], verbs: Iterable[str], expires: Delay | None
) -> tuple[Argument, ...]:
    """Pass what a token or a key may do."""
    if isinstance(queues, str) or isinstance(verbs, str):
        raise InvalidArgumentError(f"queues and verbs of a {kind} are lists")
    return (
        argument.texts("queues", queues),
        argument.texts("verbs", verbs),
        *optional(argument.moment, "expires", expires, to="expires_at"),
    )
