"""The input of COPY into the log, in PostgreSQL's binary format. No I/O here.

A row: 4 columns; 8 bytes of id; 8 of microseconds since 2000; then a length and jsonb, whose first byte is its
version.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from struct import Struct
from typing import Final

from spanmq.client.functions import Run
from spanmq.codec.batch import Encoded

# With fewer messages and less text than this, calls are as fast; docs/guides/client.md has the numbers.
MESSAGES_MIN: Final = 2_000
CHARACTERS_MIN: Final = 1024 * 1024

_BYTES_PER_WRITE: Final = 128 * 1024
_SIGNATURE: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_END: Final = b"\xff\xff"
_ROW: Final = Struct("!hiqiqiB")
_JSONB: Final = Struct("!iB")
_NULL: Final = b"\xff\xff\xff\xff"
_EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)


def is_large(chunk: list[Encoded]) -> bool:
    """Return whether COPY is faster for a chunk."""
    if len(chunk) >= MESSAGES_MIN:
        return True
    return sum(len(body) + len(headers or "") for body, headers in chunk) >= CHARACTERS_MIN


def blocks(runs: list[Run], messages: Iterator[Encoded]) -> Iterator[bytes]:
    """Yield COPY's input in blocks, taking as many messages as the runs have ids."""
    block = bytearray(_SIGNATURE)
    for _, first, last, enqueued_at in runs:
        sent_at = (enqueued_at - _EPOCH) // timedelta(microseconds=1)
        # The ids first: zip would take a message too many.
        for message_id, (body, headers) in zip(range(first, last + 1), messages, strict=False):
            message = body.encode()
            block += _ROW.pack(4, 8, message_id, 8, sent_at, len(message) + 1, 1)
            block += message
            if headers is None:
                block += _NULL
            else:
                encoded = headers.encode()
                block += _JSONB.pack(len(encoded) + 1, 1)
                block += encoded
            if len(block) >= _BYTES_PER_WRITE:
                yield bytes(block)
                block.clear()
    block += _END
    yield bytes(block)
