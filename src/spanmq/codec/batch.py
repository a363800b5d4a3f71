"""Batches of any size: bodies are encoded one by one and cut into calls. No I/O here."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from typing import Any, Final

from spanmq.codec.body import Codec, Headers, encode_headers
from spanmq.errors import InvalidArgumentError

# A body and its headers as JSON text.
Encoded = tuple[str, str | None]
EachHeaders = Headers | Iterable[Headers | None] | None
EachGroup = str | Iterable[str | None] | None

# One call carries at most this number of messages and about this number of bytes: a call needs several times
# its bytes of memory, on both sides.
MESSAGES_PER_CALL: Final = 1_000
BYTES_PER_CALL: Final = 8 * 1024 * 1024

_END: Final[Any] = object()


def encode(
    codec: Codec, bodies: Iterable[object], headers: EachHeaders, group: EachGroup
) -> Iterator[Encoded]:
    """Encode bodies as they are asked for; headers and group are one for all, or one each.

    Raises InvalidArgumentError where bodies and headers or groups turn out to differ in number.
    """
    if isinstance(bodies, str | bytes | bytearray | memoryview | Mapping):
        raise InvalidArgumentError(f"a batch needs a list of bodies, got one {type(bodies).__qualname__}")
    all_headers: Iterator[Any] = _each("headers", headers, Mapping)
    all_groups: Iterator[Any] = _each("groups", group, str)
    count = 0
    is_for_all = isinstance(all_headers, repeat)
    last: tuple[object, str | None] = (None, None)
    for count, body in enumerate(_each("bodies", bodies, type(None)), start=1):
        own_headers, own_group = next(all_headers, _END), next(all_groups, _END)
        if own_headers is _END or own_group is _END:
            raise InvalidArgumentError(
                f"a batch needs headers and groups for each body, number {count} lacks"
            )
        # Usually a batch has one and the same for all. One each may be the same object, changed meanwhile.
        if count == 1 or not is_for_all or own_group != last[0]:
            last = (own_group, encode_headers(own_headers, own_group))
        yield codec.encode(body), last[1]
    for name, values in (("headers", all_headers), ("groups", all_groups)):
        if not isinstance(values, repeat) and next(values, _END) is not _END:
            raise InvalidArgumentError(f"a batch has more {name} than its {count} bodies")


def chunks(batch: Iterator[Encoded], messages: int = MESSAGES_PER_CALL) -> Iterator[list[Encoded]]:
    """Cut a batch into what one call each may carry; raises InvalidArgumentError when it is empty."""
    chunk: list[Encoded] = []
    size = 0
    for body, headers in batch:
        length = len(body) + len(headers or "")
        if chunk and (len(chunk) == messages or size + length > BYTES_PER_CALL):
            yield chunk
            chunk, size = [], 0
        chunk.append((body, headers))
        size += length
    if not chunk:  # never after a yield: this chunk has the message that made the previous one full
        raise InvalidArgumentError("a batch cannot be empty")
    yield chunk


def _each(name: str, values: Any, one: type) -> Iterator[Any]:
    """Yield one value indefinitely, or each of several."""
    if values is None or isinstance(values, one):
        if name == "bodies":
            raise InvalidArgumentError("a batch cannot be None")
        return repeat(values)
    try:
        return iter(values)
    except TypeError as error:
        raise InvalidArgumentError(f"{name} must be a list, got {type(values).__qualname__}") from error
