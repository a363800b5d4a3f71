"""Where messages are pushed to: a URL and the secrets that sign what is sent there."""

import logging
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from spanmq.errors import InvalidArgumentError
from spanmq.model import Message
from spanmq.push.signing import Signer, signer

logger = logging.getLogger("spanmq.push")


class Endpoint:
    """A `url` that messages are pushed to. Only its host is ever printed: the rest may be a secret.

    `secrets` are one for each signature: a new one beside the old one, while the receiver changes over. Without any,
    requests are not signed. Raises InvalidArgumentError for a URL or a secret that is not valid, and
    ExtraNotInstalledError for a key of Ed25519 without the package cryptography.
    """

    __slots__ = ("_signers", "host", "url")

    def __init__(self, url: str, secrets: Iterable[str] = ()) -> None:
        self.host, _ = host_of(url)
        self.url = url
        texts = [secrets] if isinstance(secrets, str) else list(secrets)
        self._signers: list[Signer] = [signer(secret) for secret in texts]

    def __repr__(self) -> str:
        return f"Endpoint({self.host})"

    def headers(self, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
        """Return the headers of the specification for a request with this `body`.

        `message_id` identifies the message to its receiver, and `timestamp` is the time of the attempt, in whole
        seconds since 1970. Raises TypeError for a body that is not bytes.
        """
        headers = {"webhook-id": message_id, "webhook-timestamp": str(timestamp)}
        if self._signers:
            content = b"%s.%d.%s" % (message_id.encode(), timestamp, body)
            headers["webhook-signature"] = " ".join(sign(content) for sign in self._signers)
        return headers


class EndpointsFile:
    """The endpoints of a TOML file, by the groups of messages; read again when the file has changed.

    Each table is an endpoint: its name is the group, and it has a `url` and a list of `secrets`. Raises
    InvalidArgumentError for a file that cannot be read. One that becomes invalid later changes nothing, and is logged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._endpoints: dict[str, Endpoint] = {}
        self._version: tuple[int, ...] = ()
        self._read()

    def __call__(self, message: Message) -> Endpoint | None:
        """Return the endpoint of a message's group; None if the file has none."""
        try:
            self._read()
        except InvalidArgumentError as error:
            logger.warning("endpoints_not_read reason=%r", error.message)
        return self._endpoints.get(message.group or "")

    def _read(self) -> None:
        try:
            status = self._path.stat()
            version = (status.st_ino, status.st_size, status.st_mtime_ns)
            if version == self._version:
                return
            # Also when it can't be used: it is complained of once.
            self._version = version
            tables = tomllib.loads(self._path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InvalidArgumentError(f"the endpoints in {self._path} can't be read: {reason}") from error
        self._endpoints = {name: _endpoint(name, table) for name, table in tables.items()}


def _endpoint(name: str, table: Any) -> Endpoint:
    """Return the endpoint that a table of the file describes."""
    secrets: object = table.get("secrets") if isinstance(table, dict) else None
    if (
        not isinstance(table, dict)
        or set(table) - {"url", "secrets"}
        or not isinstance(table.get("url"), str)
    ):
        raise InvalidArgumentError(f"the endpoint {name!r} must have a url and secrets, and nothing else")
    if not isinstance(secrets, list) or not all(isinstance(secret, str) for secret in secrets):
        raise InvalidArgumentError(
            f"the endpoint {name!r} must have a list of secrets",
            hint="[] sends requests without a signature.",
        )
    try:
        return Endpoint(table["url"], secrets)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"the endpoint {name!r}: {error.message}", hint=error.hint) from error


def without_url(text: str, url: str) -> str:
    """Return a text without a URL, and without what follows its host."""
    for part in (url, host_of(url)[1]):
        text = text.replace(part, "…") if len(part) > 1 else text
    return text


def host_of(url: str) -> tuple[str, str]:
    """Return the host of an HTTP URL, and what follows the host; raises InvalidArgumentError.

    The error does not quote the URL, which may be a secret.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        parts, host = urlsplit(""), ""
    is_printable = url.isprintable() and " " not in url
    if parts.scheme not in ("http", "https") or not host or parts.username is not None or not is_printable:
        raise InvalidArgumentError(
            "the URL of a webhook must begin with https:// or http://, and have a host and no user"
        )
    return host, url.partition(parts.netloc)[2]
