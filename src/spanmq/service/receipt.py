"""Receipts: a message as its receiver holds it, in one opaque text of the letters that stand in any URL.

A receipt carries the queue, the message's id and the lease, and nothing secret. It is not signed: the lease
is the fencing token, and a receipt that nobody gave out settles nothing unless its lease holds that message
now. Who guesses one needs a token with the verb `receive` on that queue all the same, with which he could as
well have received the message.
"""

from __future__ import annotations

import base64
import binascii
import struct
from dataclasses import dataclass
from typing import Final

from spanmq.errors import InvalidArgumentError

_HEAD: Final = struct.Struct(">Bqq")
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a receipt says."""

    queue: str
    message_id: int
    lease_id: int


def write(queue: str, message_id: int, lease_id: int) -> str:
    """Make the text of a receipt."""
    packed = _HEAD.pack(_VERSION, lease_id, message_id) + queue.encode()
    return base64.urlsafe_b64encode(packed).rstrip(b"=").decode()


def read(text: str) -> Receipt:
    """Read a receipt; raises InvalidArgumentError for what was never one."""
    try:
        packed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        version, lease_id, message_id = _HEAD.unpack_from(packed)
        queue = packed[_HEAD.size :].decode()
    except (ValueError, binascii.Error, struct.error, UnicodeDecodeError) as error:
        raise InvalidArgumentError(f"{text[:80]!r} is no receipt") from error
    # One text for one receipt: base64 has several for the same bytes.
    if version != _VERSION or not queue or write(queue, message_id, lease_id) != text:
        raise InvalidArgumentError(f"{text[:80]!r} is no receipt")
    return Receipt(queue, message_id, lease_id)
