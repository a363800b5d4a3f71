"""Conversion of a Python value to a message's JSON, and back.

A body is anything the encoder takes; the default one also takes dataclasses, Pydantic models (by their aliases,
as they are read), dates, times, UUIDs and enumerations, wherever they stand. Text is a JSON string. Bytes travel in
an envelope, an object with this one key, and come back as the same bytes:

    {"spanmq.bytes": "<base64, RFC 4648, padded>"}

PostgreSQL stores `jsonb`, which keeps values and not their spelling: keys come back in another order, a
duplicate key once, and 1e16 as the integer that it is.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any, Final
from uuid import UUID

from spanmq.codec.encryption import Encryption, Unopened
from spanmq.codec.exact_json import int_of, json_of
from spanmq.errors import BodyTooLargeError, InvalidArgumentError, InvalidBodyError, ResultNotStoredError
from spanmq.model import GROUP_HEADER

__all__ = ["RawJson"]

Headers = Mapping[str, Any]
Encoder = Callable[[Any], str | bytes]
Decoder = Callable[[bytes], Any]

BYTES_KEY: Final = "spanmq.bytes"
UNSTORED_KEY: Final = "spanmq.unstored"

# A jsonb holds at most 0x0FFFFFFF bytes, 1 MB short of 257: PostgreSQL calls it 255 MB.
BODY_BYTES_MAX: Final = 255 * 1024 * 1024

# The server's limit for a result, with the spaces that it adds: checked here so that no other message waits for the
# refusal.
RESULT_BYTES_MAX: Final = 65_536
# Of the reason why a result was not stored.
REASON_MAX: Final = 2_000

# \u0000 that is an escape, not the end of an escaped backslash followed by "u0000".
_ESCAPED_NUL: Final = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class RawJson:
    """JSON `text`, str or UTF-8 in bytes, that is ready to be sent: no encoder touches it.

    A send raises InvalidBodyError if it is not JSON.
    """

    text: str | bytes

    def __str__(self) -> str:
        return self.text if isinstance(self.text, str) else self.text.decode()


class ValidJson(RawJson):
    """A RawJson of what has made JSON, or checked it."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Unstored:
    """In place of a result that could not be stored: why not."""

    reason: str


def plain(value: object) -> object:
    """Return a value that JSON has for one that it has not; raises TypeError or ValueError for what it can't keep."""
    if _is_pydantic(value):
        return _json_decoder.decode(_written(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    # Another value of one would be JSON of which it is not found.
    if isinstance(value, Enum) and isinstance(value.value, str | int | float | None):
        return value.value
    raise TypeError(f"a {type(value).__qualname__} can't be encoded as JSON")


def _is_pydantic(value: object) -> bool:
    """Return whether a value is a model, or one of Pydantic's own dataclasses."""
    return hasattr(type(value), "__pydantic_validator__")


def _written(value: Any) -> str:
    from spanmq.model.parse import reasons, write

    kind = type(value)
    try:
        return write(value, kind.__pydantic_serializer__, kind.__pydantic_validator__)
    except ValueError as error:
        raise ValueError(reasons(error, kind.__qualname__)) from error


# NaN and Infinity are not JSON: the server would refuse them with a remark on syntax. Sorting finds keys of several
# types in one object, 1 and "1", which would be one key in JSON.
_json_encoder = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True, default=plain
)
# Not json.loads, of whose time a third goes into guessing the encoding of bytes that are UTF-8; nor `decode`,
# which looks for white space around it: PostgreSQL prints none.
_json_decoder = json.JSONDecoder()

# Apart, because it calls Python for each number.
_long_number_decoder = json.JSONDecoder(parse_int=int_of)


def read_json(raw: bytes) -> Any:
    """Parse JSON as PostgreSQL prints it; raises ValueError if it is not valid, RecursionError if it is deep."""
    text = raw.decode()
    try:
        return _json_decoder.raw_decode(text)[0]
    except json.JSONDecodeError:
        raise
    except ValueError:
        return _long_number_decoder.raw_decode(text)[0]


@dataclass(frozen=True, slots=True)
class Codec:
    """An encoder and a decoder, and what is checked before anything is sent.

    A given `encoder` gets dataclasses and Pydantic models made plain at the top level only; below it they are
    its own affair. A given `decoder` gets the JSON as bytes; only an envelope that it makes a dict of is
    opened. With an `encryption` bodies are sealed for the `place` that the codec is of.
    """

    encoder: Encoder | None = None
    decoder: Decoder | None = None
    encryption: Encryption | None = None
    place: str | None = None

    def of(self, place: str) -> Codec:
        """Return the codec for a queue, or `topic …`, for which bodies are encrypted."""
        return self if self.encryption is None else replace(self, place=place)

    def encode(self, body: object) -> str:
        """Return the JSON of a body; raises InvalidBodyError or BodyTooLargeError."""
        try:
            text = self._text(body)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InvalidBodyError(
                f"the body can't be encoded: {error}",
                hint="Send JSON values, dataclasses, Pydantic models or bytes, or set an encoder.",
            ) from error
        text = _checked(text, "body")
        if self.encryption is None or self.place is None:
            return text
        if self.encoder is not None or type(body) is RawJson:
            _check_json(text)
        return _checked(self.encryption.seal(text, self.place), "sealed body")

    def encode_result(self, result: object) -> str:
        """Return the JSON of a result; raises InvalidBodyError, or InvalidArgumentError for one that is too large."""
        if isinstance(result, Unstored):
            reason = result.reason.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()
            return self.encode({UNSTORED_KEY: reason[:REASON_MAX]})
        text = self.encode(result)
        if text.startswith(f'{{"{UNSTORED_KEY}"'):
            raise InvalidBodyError(f"the key {UNSTORED_KEY!r} is reserved for results that were not stored")
        if (size := len(text.encode())) > RESULT_BYTES_MAX:
            raise InvalidArgumentError(
                f"the result of a message has at most {RESULT_BYTES_MAX} bytes as JSON, got: {size}",
                hint="Store it elsewhere, and return its key.",
            )
        return text

    def decode_result(self, raw: bytes | None) -> object:
        """Return the decoded result; an Unopened for one that was not stored, or can't be decoded."""
        value = self.decode(raw)
        members: object = value
        if isinstance(value, RawJson) and str(value).startswith(f'{{"{UNSTORED_KEY}"'):
            members = _json_decoder.decode(str(value))
        if isinstance(members, dict) and members.keys() == {UNSTORED_KEY}:
            return Unopened(
                str(value), ResultNotStoredError(f"the result was not stored: {members[UNSTORED_KEY]}")
            )
        return value

    def fingerprint(self, text: str | None) -> str | None:
        """Return the value to store as a fingerprint: with an `encryption` a keyed hash."""
        if self.encryption is None or self.place is None or not isinstance(text, str):
            return text
        return self.encryption.fingerprint(text, self.place)

    def decode(self, raw: bytes | None) -> object:
        """Return the decoded body; None for SQL's null, an Unopened for a body that cannot be decoded."""
        if raw is None:
            return None
        if self.encryption is not None and self.place is not None:
            opened = self.encryption.open(raw, self.place)
            if isinstance(opened, Unopened):
                return opened
            raw = opened
        try:
            value = read_json(raw) if self.decoder is None else self.decoder(raw)
        except Exception as error:  # noqa: BLE001, a decoder may raise anything; the others must come through
            return unread(raw, "body", error)
        if type(value) is dict and len(value) == 1 and isinstance(envelope := value.get(BYTES_KEY), str):
            try:
                return base64.b64decode(envelope, validate=True)
            except binascii.Error:
                return value  # an object of the user that resembles an envelope
        return value

    def _text(self, body: object) -> str:
        if isinstance(body, RawJson):
            if not isinstance(body.text, str | bytes):
                raise TypeError(f"RawJson takes str or bytes, got {type(body.text).__qualname__}")
            return str(body)
        if isinstance(body, bytes | bytearray | memoryview):
            # bytes(): a memoryview may have gaps
            return f'{{"{BYTES_KEY}":"{base64.b64encode(bytes(body)).decode()}"}}'
        if isinstance(body, Mapping) and len(body) == 1 and isinstance(body.get(BYTES_KEY), str):
            raise ValueError(f"a text under the single key {BYTES_KEY!r} is the envelope of bytes")
        if self.encoder is None:
            return _json_encoder.encode(body)
        if _is_pydantic(body) or dataclasses.is_dataclass(body):
            body = plain(body)
        encoded = self.encoder(body)
        return encoded if isinstance(encoded, str) else bytes(encoded).decode()


def unread(raw: bytes, what: str, error: Exception) -> Unopened:
    """Return the placeholder of a body that cannot be decoded, or whose headers cannot be."""
    reason = InvalidBodyError(f"the {what} cannot be decoded: {error}")
    reason.__cause__ = error
    return Unopened(raw.decode(errors="replace"), reason)


def to_json(value: Any) -> str:
    """Write a value as JSON: dataclasses as objects, times in ISO 8601, a RawJson as it is, to the last digit."""
    if isinstance(value, RawJson):
        return str(value)
    if value is None or isinstance(value, str | int):
        return plain_json(value)
    if isinstance(value, datetime):
        return f'"{value.isoformat()}"'
    if isinstance(value, Unopened):
        return to_json({"spanmq.unopened": value.error.message})
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return "{" + ",".join([f"{_encode(str(k))}:{to_json(v)}" for k, v in value.items()]) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join([to_json(element) for element in value]) + "]"
    return _encode(value)


def plain_json(value: object) -> str:
    """Write what a JSON parser returned, which is faster than `to_json`."""
    try:
        return _encode(value)
    except ValueError:
        # A number with more digits than Python converts (4,300); PostgreSQL stores 131,072.
        if type(value) is int:
            return f"{Decimal(value):f}"
        if isinstance(value, Mapping | list):
            return to_json(value)
        raise


def encode_headers(headers: Headers | None, group: str | None) -> str | None:
    """Return the JSON of headers with the group among them; None without either."""
    if headers is None and group is None:
        return None
    if headers is not None and not isinstance(headers, Mapping):
        raise InvalidArgumentError(f"headers must be a mapping, got {type(headers).__qualname__}")
    merged = dict(headers or {})
    if group is not None:
        if not isinstance(group, str):
            raise InvalidArgumentError(f"group must be a string, got {type(group).__qualname__}")
        if merged.setdefault(GROUP_HEADER, group) != group:
            raise InvalidArgumentError(f"group {group!r} contradicts the header {GROUP_HEADER!r}")
    try:
        text = _json_encoder.encode(merged)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidBodyError(f"the headers can't be encoded: {error}") from error
    return _checked(text, "headers")


def _check_json(text: str) -> None:
    """Refuse what is not JSON, and so is not read: PostgreSQL does not see what is sealed."""
    try:
        value = json_of(text)
        if "\\u" in text:
            to_json(value).encode()
    except (ValueError, RecursionError) as error:
        raise InvalidBodyError(f"the body is not valid JSON: {error}") from error


# Headers know no bytes.
_AS_BYTES: Final = {"body": "Send it as bytes: they come back unchanged."}


def _checked(text: str, what: str) -> str:
    """Refuse what PostgreSQL would refuse less clearly, or only after hundreds of megabytes."""
    if "\0" in text or ("\\u0000" in text and _ESCAPED_NUL.search(text)):
        raise InvalidBodyError(
            f"the character NUL in the {what} is one that PostgreSQL can't store", hint=_AS_BYTES.get(what)
        )
    # The number of bytes matters only near the limit or when a character may have no encoding.
    if len(text) * 4 > BODY_BYTES_MAX or not text.isascii():
        try:
            size = len(text.encode())
        except UnicodeEncodeError as error:
            raise InvalidBodyError(
                f"the {what} contains an unpaired surrogate, which is not a character",
                hint=_AS_BYTES.get(what),
            ) from error
        if size > BODY_BYTES_MAX:
            raise BodyTooLargeError(
                f"the {what} has {size:,} bytes of JSON, the limit is {BODY_BYTES_MAX:,}",
                hint="Store it elsewhere and send a reference.",
            )
    return text
