"""Large JSON of requests: bodies of messages are cut out of it unread, while other requests are answered.

Parsing fifteen megabytes of small members takes seconds, in which this process could do nothing else, and
hundreds of megabytes. PostgreSQL parses bodies anyway.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from time import monotonic
from typing import Any, Final
from uuid import uuid4

from spanmq.codec.body import RawJson
from spanmq.service.failure import Refusal

# Smaller ones are parsed within some milliseconds.
LARGE_BYTES: Final = 128 * 1024
# Strings, lists and objects, and numbers, outside of bodies: parsed within 50 ms.
VALUES_MAX: Final = 100_000
SLICE_SECONDS: Final = 0.002
SLICE_STEPS: Final = 500
_OUTSIDE: Final = re.compile(rb'["\[\]{}]')
# A part of a string, up to its end or a thousand escapes.
_STRING: Final = re.compile(rb'[^"\\]*(?:\\.[^"\\]*){0,1000}', re.DOTALL)
_PAUSE: Final = 0
_QUOTE: Final = b'"'[0]
# Longer names, with their quotes, are none that the scan needs.
NAME_BYTES_MAX: Final = 20
_OPENING: Final = b"[{"


async def parse(text: bytes, turn: asyncio.Lock, *, keeps_bodies: bool) -> Any:
    """Return the value of JSON, with each large body of a message as RawJson; raises JSONDecodeError or 413.

    `turn` is held while it is read: one at a time. Without `keeps_bodies` bodies are parsed as all else.
    """
    if len(text) < LARGE_BYTES:
        return json.loads(text)
    mark = uuid4().hex
    bodies: list[bytes] = []
    parts: list[bytes] = []
    end = 0
    async with turn:
        async for begin, after in _bodies_in(text, keeps_bodies=keeps_bodies):
            parts += [text[end:begin], f'"{mark}{len(bodies)}"'.encode()]
            bodies.append(text[begin:after])
            end = after
    rest = b"".join([*parts, text[end:]])
    if rest.count(b",") > VALUES_MAX and _commas_of(rest) > VALUES_MAX:
        raise _too_many()

    def restored(value: dict[str, Any]) -> dict[str, Any]:
        body = value.get("body")
        if type(body) is str and body.startswith(mark):
            value["body"] = RawJson(bodies[int(body[len(mark) :])])
        return value

    return json.loads(rest, object_hook=restored)


async def _bodies_in(text: bytes, *, keeps_bodies: bool) -> AsyncIterator[tuple[int, int]]:
    """Yield where the lists and objects begin and end that are bodies: `body`, and `body` of each of `messages`."""
    scan = _Scan()
    until = monotonic() + SLICE_SECONDS
    for step, (kind, start, end) in enumerate(_tokens(text)):
        if step % SLICE_STEPS == 0 and monotonic() > until:
            await asyncio.sleep(0)
            until = monotonic() + SLICE_SECONDS
        if kind == _QUOTE:
            scan.see_string(text[start:end] if end - start < NAME_BYTES_MAX else b"")
        elif kind == _PAUSE:
            continue
        elif kind in _OPENING:
            scan.open(start, keeps_bodies=keeps_bodies)
        elif (begin := scan.close()) is not None:
            yield begin, end


def _tokens(text: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield each string and bracket with its place; in long strings with escapes also pauses."""
    place = 0
    while (found := _OUTSIDE.search(text, place)) is not None:
        start, place = found.span()
        kind = text[start]
        while kind == _QUOTE:
            part = _STRING.match(text, place)
            assert part is not None, "it matches nothing, too"
            if part.end() == place and text[place : place + 1] != b'"':
                return  # it does not end
            place = part.end()
            if text[place : place + 1] == b'"':
                place += 1
                break
            yield _PAUSE, start, place
        yield kind, start, place


class _Scan:
    """Where in the JSON a scan is, and where the body begins that it is in."""

    def __init__(self) -> None:
        self._depth = 0
        self._count = 0
        self._begin: int | None = None
        self._depth_of_body = 0
        # The last string, and the last one before a list or object of the outermost object.
        self._last = self._top = b""

    def see_string(self, text: bytes) -> None:
        if self._begin is None:
            self._last = text
            self._add()

    def open(self, start: int, *, keeps_bodies: bool) -> None:
        if self._begin is None:
            self._add()
            is_of_messages = self._depth == 3 and self._top == b'"messages"'
            if keeps_bodies and self._last == b'"body"' and (self._depth == 1 or is_of_messages):
                self._begin, self._depth_of_body = start, self._depth
            elif self._depth == 1:
                self._top = self._last
        self._depth += 1

    def close(self) -> int | None:
        """Leave a list or object; return where it began if it is a body."""
        self._depth -= 1
        begin = self._begin
        if begin is None or self._depth != self._depth_of_body:
            return None
        self._begin = None
        return begin

    def _add(self) -> None:
        self._count += 1
        if self._count > VALUES_MAX:
            raise _too_many()


def _commas_of(text: bytes) -> int:
    """Return the number of commas outside of strings, of which there are not too many."""
    plain = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"".join(plain.split(b'"')[::2]).count(b",")


def _too_many() -> Refusal:
    return Refusal(
        413,
        "request_too_large",
        f"a request may have {VALUES_MAX:,} values beside the bodies of its messages",
        hint="Send it in several requests.",
    )
