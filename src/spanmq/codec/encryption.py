"""Bodies that the database cannot read: encrypted before they are sent, decrypted after they are received.

A body is encrypted with AES-256-GCM under a data key, which is encrypted with your own key and sent along:

    {"spanmq.sealed": {"key": "<id of it>", "data_key": "…", "for": "<queue>", "nonce": "…", "text": "…"}}

The queue, the data key and the id of your key are bound to the text: changed, nothing opens. A process makes
a data key of its own, and another one after an hour or a million bodies. See docs/guides/encryption.md.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import os
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from spanmq.errors import (
    DecryptionError,
    EncryptionError,
    ExtraNotInstalledError,
    InvalidBodyError,
    ResultNotStoredError,
)
from spanmq.model.queue import folded

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["Encryption", "Unopened"]

SEALED_KEY: Final = "spanmq.sealed"
MARK: Final = f'"{SEALED_KEY}"'.encode()
FILE_VARIABLE: Final = "SPANMQ_ENCRYPTION_KEY_FILE"
KEYS_VARIABLE: Final = "SPANMQ_ENCRYPTION_KEYS"
TRUSTED_VARIABLE: Final = "SPANMQ_ENCRYPTION_TRUSTED"
ONLY_SEALED_VARIABLE: Final = "SPANMQ_ENCRYPTION_ONLY_SEALED"
KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
# A random nonce may repeat after some 2^32 bodies under one key: far fewer.
DATA_KEY_BODIES: Final = 1_000_000
DATA_KEY_SECONDS: Final = 3600.0
OPENED_MAX: Final = 1_000
_LINE: Final = re.compile(r"(?P<id>[A-Za-z0-9._-]{1,64})\s+(?P<key>[A-Za-z0-9+/]{43}=)")


@dataclass(frozen=True, slots=True)
class Unopened:
    """A body or result that could not be opened or read, as it is in the database, and why not."""

    text: str
    error: DecryptionError | InvalidBodyError | ResultNotStoredError


@dataclass(slots=True)
class _DataKey:
    cipher: AESGCM
    key_id: str
    wrapped: str
    until: float
    left: int


@dataclass(frozen=True, slots=True)
class Encryption:
    """Your `keys`, 32 bytes each, by their ids; the last one seals, all of them open.

    `trusted` are patterns of the queues and topics (`topic orders.*`) whose bodies are opened in another
    queue, too: that of a subscription, of dead letters that were moved, of what came by a topic.
    `only_sealed` refuses bodies that are not sealed. Raises EncryptionError for an invalid key, ExtraNotInstalledError
    without the extra `encryption`.
    """

    keys: dict[str, bytes] = field(repr=False)
    trusted: tuple[str, ...] = ()
    only_sealed: bool = False
    _state: _State = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raise an error for an invalid key."""
        if not self.keys:
            raise EncryptionError("there is no key")
        for key_id, key in self.keys.items():
            if len(key) != KEY_BYTES:
                raise EncryptionError(f"the key {key_id!r} must have {KEY_BYTES} bytes, it has {len(key)}")
        object.__setattr__(self, "_state", _State(self.keys))

    @classmethod
    def from_file(cls, path: str | Path, **options: Any) -> Encryption:
        """Read keys from the file `path`: a line `id base64` for each, empty lines and # comments.

        `options` are the other fields. Raises EncryptionError if it can't be read, or has an invalid line.
        """
        try:
            text = Path(path).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise EncryptionError(f"the file of keys {str(path)!r} can't be read") from error
        return cls(read_keys(text, str(path)), **options)

    @classmethod
    def from_environment(cls, **options: Any) -> Encryption | None:
        """Read keys and options from the environment; None without keys.

        `options` take precedence over those of the environment. Raises what `from_file` raises.
        """
        trusted = (pattern.strip() for pattern in os.environ.get(TRUSTED_VARIABLE, "").split(","))
        options.setdefault("trusted", tuple(pattern for pattern in trusted if pattern))
        options.setdefault("only_sealed", _boolean(ONLY_SEALED_VARIABLE))
        if path := os.environ.get(FILE_VARIABLE):
            return cls.from_file(path, **options)
        if text := os.environ.get(KEYS_VARIABLE):
            return cls(read_keys(text.replace(",", "\n"), KEYS_VARIABLE), **options)
        if options["only_sealed"]:
            raise EncryptionError(
                "only sealed bodies are accepted, and no key is set",
                hint=f"Set {FILE_VARIABLE} or {KEYS_VARIABLE}, or unset {ONLY_SEALED_VARIABLE}.",
            )
        return None

    def fingerprint(self, text: str, place: str) -> str:
        """Return an HMAC-SHA-256 of a `text` for the queue `place`, in hexadecimal.

        The text cannot be guessed from it without the keys. The first key is used, so that a key that is
        added changes no fingerprint.
        """
        value = json.dumps([folded(place), text]).encode()
        return hmac.digest(self._state.fingerprint_key, value, "sha256").hex()

    def seal(self, text: str, place: str) -> str:
        """Return the JSON of a body, `text`, encrypted for the queue `place`, or for `topic …`."""
        data_key = self._state.sealing()
        nonce = secrets.token_bytes(NONCE_BYTES)
        bound = _bound(place, data_key.key_id, data_key.wrapped)
        sealed = data_key.cipher.encrypt(nonce, text.encode(), bound)
        envelope = {
            "key": data_key.key_id,
            "data_key": data_key.wrapped,
            "for": place,
            "nonce": _text(nonce),
            "text": _text(sealed),
        }
        return json.dumps({SEALED_KEY: envelope}, separators=(",", ":"))

    def open(self, raw: bytes, queue: str) -> bytes | Unopened:
        """Return the JSON of a body of a `queue`, of which `raw` is stored; an Unopened if it can't be decrypted.

        An unencrypted one is unchanged, unless only encrypted ones are accepted.
        """
        try:
            envelope = envelope_of(raw)
            if envelope is None:
                if self.only_sealed:
                    raise DecryptionError("the body is not sealed", queue=queue)
                return raw
            return self._open(envelope, queue)
        except DecryptionError as error:
            return Unopened(raw.decode(), error)

    def _open(self, envelope: dict[str, str], queue: str) -> bytes:
        from cryptography.exceptions import InvalidTag

        place = envelope["for"]
        if folded(place) != folded(queue) and not any(
            fnmatchcase(place, pattern) for pattern in self.trusted
        ):
            raise DecryptionError(
                f"the body was sealed for {place!r}", hint="Add it to `trusted`.", queue=queue
            )
        try:
            cipher = self._state.opening(envelope["key"], envelope["data_key"])
            nonce, sealed = _bytes(envelope["nonce"]), _bytes(envelope["text"])
            return cipher.decrypt(nonce, sealed, _bound(place, envelope["key"], envelope["data_key"]))
        except (InvalidTag, ValueError) as error:
            # Not what the cipher says of it: nothing, and that is as it should be.
            raise DecryptionError("the body, or its data key, was changed", queue=queue) from error


class _State:
    """The data key that seals now, and those that were opened; for any thread."""

    def __init__(self, keys: dict[str, bytes]) -> None:
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
            from cryptography.hazmat.primitives.hashes import SHA256
            from cryptography.hazmat.primitives.kdf.hkdf import HKDF
        except ModuleNotFoundError as error:
            raise ExtraNotInstalledError(
                "bodies can't be encrypted: the package cryptography is not installed", extra="encryption"
            ) from error
        self._make = AESGCM
        self._keys = {key_id: AESGCM(key) for key_id, key in keys.items()}
        self._last_id = list(keys)[-1]
        derivation = HKDF(SHA256(), KEY_BYTES, salt=None, info=b"spanmq fingerprint 1")
        self.fingerprint_key = derivation.derive(next(iter(keys.values())))
        self._sealing: _DataKey | None = None
        self.opening = lru_cache(OPENED_MAX)(self._opening)
        self._lock = Lock()

    def sealing(self) -> _DataKey:
        """Return a data key for one more body."""
        with self._lock:
            current = self._sealing
            if current is None or current.left <= 0 or current.until < monotonic():
                secret, nonce = secrets.token_bytes(KEY_BYTES), secrets.token_bytes(NONCE_BYTES)
                wrapped = nonce + self._keys[self._last_id].encrypt(nonce, secret, _bound_key(self._last_id))
                current = _DataKey(
                    self._make(secret),
                    self._last_id,
                    _text(wrapped),
                    until=monotonic() + DATA_KEY_SECONDS,
                    left=DATA_KEY_BODIES,
                )
                self._sealing = current
            current.left -= 1
            return current

    def _opening(self, key_id: str, wrapped: str) -> AESGCM:
        """Return the data key that was sent with a body; raises ValueError or InvalidTag for an invalid one."""
        key = self._keys.get(key_id)
        if key is None:
            raise DecryptionError(
                f"the body was sealed under the key {key_id!r}, which this program does not have"
            )
        packed = _bytes(wrapped)
        return self._make(key.decrypt(packed[:NONCE_BYTES], packed[NONCE_BYTES:], _bound_key(key_id)))


def read_keys(text: str, where: str) -> dict[str, bytes]:
    """Read lines `id base64`; raises EncryptionError, in which there is nothing of a key."""
    keys: dict[str, bytes] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not (line := line.strip()) or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise EncryptionError(
                f"line {number} of {where} is not a key", hint="A line is an id and 32 bytes in base64."
            )
        if match["id"] in keys:
            raise EncryptionError(f"{where} has the key {match['id']!r} twice")
        keys[match["id"]] = base64.b64decode(match["key"])
    return keys


def new_line(key_id: str) -> str:
    """Return a new key, as a line of such a file."""
    line = f"{key_id} {_text(secrets.token_bytes(KEY_BYTES))}"
    if _LINE.fullmatch(line) is None:
        raise EncryptionError(f"{key_id!r} can't be the id of a key", hint="Letters, digits and . _ -")
    return line


def envelope_of(raw: bytes) -> dict[str, str] | None:
    """Return the parts of an encrypted body; None for any other body."""
    # Cheap for other bodies: the marker is at the start of any envelope.
    if MARK not in raw[: len(MARK) + 8]:
        return None
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    envelope = value.get(SEALED_KEY) if isinstance(value, dict) and len(value) == 1 else None
    parts = {"key", "data_key", "for", "nonce", "text"}
    if not isinstance(envelope, dict) or envelope.keys() != parts:
        return None
    return envelope if all(isinstance(part, str) for part in envelope.values()) else None


def key_ids_of(bodies: Iterable[bytes | str]) -> dict[str, int]:
    """Count bodies by the id of the key that sealed them; "" for those that are not sealed."""
    counts: dict[str, int] = {}
    for body in bodies:
        envelope = envelope_of(body.encode() if isinstance(body, str) else body)
        key_id = "" if envelope is None else envelope["key"]
        counts[key_id] = counts.get(key_id, 0) + 1
    return counts


def _boolean(variable: str) -> bool:
    value = os.environ.get(variable, "").lower()
    if value not in {"", "0", "1", "false", "true"}:
        raise EncryptionError(f"{variable} must be true or false, got {value!r}")
    return value in {"1", "true"}


def _bound(place: str, key_id: str, wrapped: str) -> bytes:
    # As JSON: different triples never have the same bytes.
    return json.dumps(["spanmq body 1", place, key_id, wrapped]).encode()


def _bound_key(key_id: str) -> bytes:
    return json.dumps(["spanmq data key 1", key_id]).encode()


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("no base64") from error
