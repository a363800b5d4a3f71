"""Receipts: a message as its receiver holds it, in one opaque text of the letters that stand in any URL.

A receipt carries the queue, the message's id and the lease, and nothing secret. It is not signed: the lease
is the fencing token, and a receipt that nobody gave out settles nothing unless its lease holds that message
now. Who guesses one needs a token with the verb `receive` on that queue all the same, with which he could as
well have received the message.
"""

from __future__ import annotations

import binascii
import struct
from dataclasses import dataclass
from typing import Final

from spanmq.errors import InvalidArgumentError

_HEAD: Final = struct.Struct(">Bqq")
_VERSION: Final = 1
_TO_URL: Final = bytes.maketrans(b"+/", b"-_")
_FROM_URL: Final = bytes.maketrans(b"-_", b"+/")


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a receipt says."""

    queue: str
    message_id: int
    lease_id: int


def write(queue: str, message_id: int, lease_id: int) -> str:
    """Make the text of a receipt."""
    # Not the module base64, which takes twice as long: a receive writes one for each message.
    packed = _HEAD.pack(_VERSION, lease_id, message_id) + queue.encode()
    return binascii.b2a_base64(packed, newline=False).rstrip(b"=").translate(_TO_URL).decode()


def read(text: str) -> Receipt:
    """Read a receipt; raises InvalidArgumentError for what was never one."""
    try:
        given = text.encode("ascii").translate(_FROM_URL)
        packed = binascii.a2b_base64(given + b"=" * (-len(given) % 4), strict_mode=True)
        version, lease_id, message_id = _HEAD.unpack_from(packed)
        queue = packed[_HEAD.size :].decode()
    except (ValueError, struct.error) as error:
        raise InvalidArgumentError(f"{text[:80]!r} is no receipt") from error
    # One text for one receipt: base64 has several for the same bytes.
    if version != _VERSION or not queue or write(queue, message_id, lease_id) != text:
        raise InvalidArgumentError(f"{text[:80]!r} is no receipt")
    return Receipt(queue, message_id, lease_id)
