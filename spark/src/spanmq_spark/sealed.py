"""Encrypted bodies: executors decrypt what they read and encrypt what they write, with keys from a file.

The keys themselves are not options, because Spark shows options in its pages and logs.
"""

import json
from functools import lru_cache

import pyarrow

from spanmq.codec import Encryption, Unopened
from spanmq.errors import InvalidBodyError
from spanmq_spark.options import Options


def keys_of(options: Options) -> Encryption | None:
    """Return the keys that the options name, None without; raises EncryptionError if they cannot be read."""
    if options.encryption_key_file is None:
        return None
    return _keys(options.encryption_key_file, options.encryption_trusted)


def opened(texts: pyarrow.Array, options: Options, queue: str) -> pyarrow.Array:
    """Return decrypted bodies; raises DecryptionError for one that cannot be decrypted.

    Without keys encrypted bodies stay encrypted.
    """
    keys = keys_of(options)
    if keys is None:
        return texts
    bodies: list[str | None] = []
    for text in texts.to_pylist():
        body = None if text is None else keys.open(text.encode(), queue)
        if isinstance(body, Unopened):
            raise body.error
        bodies.append(None if body is None else body.decode())
    return pyarrow.array(bodies, pyarrow.string())


def sealed(
    texts: pyarrow.Array | pyarrow.ChunkedArray, options: Options
) -> pyarrow.Array | pyarrow.ChunkedArray:
    """Seal bodies for the queue that the options name; without keys they stay as they are."""
    keys = keys_of(options)
    if keys is None:
        return texts
    bodies: list[str | None] = []
    for text in texts.to_pylist():
        if text is not None:
            _check(text, options.queue)
        bodies.append(None if text is None else keys.seal(text, options.queue))
    return pyarrow.array(bodies, pyarrow.string())


def _check(text: str, queue: str) -> None:
    """Refuse what is no JSON: PostgreSQL does not see it any more."""
    try:
        json.loads(text)
    except ValueError as error:
        raise InvalidBodyError(f"a body for queue {queue} is not valid JSON: {error}", queue=queue) from error


@lru_cache
def _keys(path: str, trusted: tuple[str, ...]) -> Encryption:
    return Encryption.from_file(path, trusted=trusted)
