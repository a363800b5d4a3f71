"""The result backend of Celery: results are stored as those of messages of a queue that has none."""

from contextlib import suppress
from hashlib import blake2b
from typing import Any, Final

from celery.backends.base import KeyValueStoreBackend
from kombu.utils.encoding import bytes_to_str

from spanmq.celery.session import BrokerSession
from spanmq.errors import TEMPORARY, MissingPrivilegeError, QueueNotFoundError

QUEUE: Final = "celery.results"
# A result has at most 64 KB as JSON; a character may take four bytes.
PIECE: Final = 15_000
# The longest time that a result can be kept.
KEEP_SECONDS_MAX: Final = 30 * 86_400.0


class Backend(KeyValueStoreBackend):
    """Results as rows of the table of results, which maintenance deletes when they expire.

    Options (`result_backend_transport_options`): `queue`, whose rights count for results; `pool_size`; `pooler`. A
    result is found by 63 bits of a hash of its key.
    """

    supports_autoexpire = True

    def __init__(self, app: Any, url: str | None = None, **options: Any) -> None:
        super().__init__(app, url=url, **options)
        settings = app.conf.get("result_backend_transport_options") or {}
        self._queue = settings.get("queue", QUEUE)
        self._session = BrokerSession(url, settings)
        self._is_ready = False

    def as_uri(self, include_password: bool = False) -> str:
        """Return the address for a person to read; its parameters may have a password, too."""
        address: str = super().as_uri(include_password)
        return address if include_password else address.partition("?")[0]

    def exception_safe_to_retry(self, exc: BaseException) -> bool:
        """Return whether a call that failed may be made again."""
        return isinstance(exc, TEMPORARY)

    def get(self, key: bytes | str) -> str | None:
        """Return the value of a key."""
        name = bytes_to_str(key)
        first = self._pieces([_id_of(name, 0)])
        while first and first[0]["key"] == name:
            pieces = first
            # In one statement: a value that is replaced meanwhile is read before or after that.
            if (count := first[0]["pieces"]) > 1:
                pieces = self._pieces([_id_of(name, number) for number in range(count)])
            if pieces and pieces[0]["pieces"] == count == len(pieces):
                return "".join(piece["value"] for piece in pieces)
            first = pieces[:1]
        return None

    def set(self, key: bytes | str, value: bytes | str) -> None:
        """Store the value of a key for as long as results are kept."""
        self._store(
            bytes_to_str(key), bytes_to_str(value), min(self.expires or KEEP_SECONDS_MAX, KEEP_SECONDS_MAX)
        )

    def delete(self, key: bytes | str) -> None:
        """Remove a key: its value expires at once."""
        self._store(bytes_to_str(key), "", 0.001)

    def _store(self, key: str, value: str, keep_for: float) -> None:
        if not self._is_ready:
            with suppress(MissingPrivilegeError):
                self._session.client.queues.create(self._queue)
            self._is_ready = True
        pieces = [value[start : start + PIECE] for start in range(0, len(value) or 1, PIECE)]
        with self._session.client.transaction() as client:
            for number, piece in enumerate(pieces):
                result = {"key": key, "pieces": len(pieces), "value": piece}
                client.results.store(self._queue, _id_of(key, number), result, keep_for=keep_for)

    def _pieces(self, ids: list[int]) -> list[Any]:
        """Return the pieces of these ids that are kept, in the order of the ids."""
        try:
            results: dict[int, Any] = self._session.client.results.get(self._queue, ids)
        except QueueNotFoundError:  # nothing was stored yet
            return []
        return [results[message_id] for message_id in ids if message_id in results]


def _id_of(key: str, number: int) -> int:
    """Return the id under which a piece of a key's value is stored, 63 bits of its hash."""
    digest = blake2b(f"{number} {key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1
