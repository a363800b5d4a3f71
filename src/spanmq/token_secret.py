"""Secrets of tokens, and what the database has of them: a plain hash, for nobody can try 256 random bits."""

from __future__ import annotations

import hashlib
import secrets
from typing import Final

# A word by which scanners of sources know what was left in them.
PREFIX: Final = "spanmq_"


def new_secret() -> str:
    """Give 256 random bits as text."""
    return PREFIX + secrets.token_urlsafe(32)


def hash_of(secret: str) -> str:
    """Give what the database has of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
