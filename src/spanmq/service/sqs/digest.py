"""MD5 of bodies and message attributes, by which SQS's clients check what arrived.

How attributes are put into bytes: Amazon SQS Developer Guide, "Calculating the MD5 message digest for
message attributes".
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any


def of_body(body: str) -> str:
    """Give the digest of a body."""
    return hashlib.md5(body.encode(), usedforsecurity=False).hexdigest()


def of_attributes(attributes: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Give the digest of message attributes, None of none."""
    if not attributes:
        return None
    digest = hashlib.md5(usedforsecurity=False)
    for name in sorted(attributes):
        value = attributes[name]
        digest.update(_sized(name.encode()) + _sized(value["DataType"].encode()))
        if value.get("BinaryValue") is not None:
            digest.update(b"\x02" + _sized(value["BinaryValue"]))
        else:
            digest.update(b"\x01" + _sized(value["StringValue"].encode()))
    return digest.hexdigest()


def _sized(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data
