"""The data source over a queue, driven as Spark drives it (protocol.py). A real session: see `session`."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.cli.program import do

if TYPE_CHECKING:
    from spark.tests.protocol import Source, Stream

    from spanmq.client import Client

collect_ignore_glob = [] if find_spec("pyspark") else ["*"]
Load = Callable[..., "Source"]
Streams = Callable[..., "Stream"]


@contextmanager
def new_role(dsn: str) -> Iterator[str]:
    """A role of the test's own, which may log in; it is dropped with what it owns in this database."""
    role = f"etl_{uuid.uuid4().hex[:8]}"
    do(dsn, f"create role {role} login")
    try:
        yield role
    finally:
        do(dsn, f"drop owned by {role} cascade", f"drop role {role}")


@pytest.fixture
def dsn(client: Client, database: str) -> str:
    """The DSN of a database with the queue `orders`, in which the test has no session: it may be copied."""
    client.close()
    return database


@pytest.fixture
def load(database: str) -> Load:
    """The source over a queue, with options."""
    from spark.tests.protocol import Source

    def named(queue: str = "orders", **options: Any) -> Source:
        return Source({"dsn": database, "queue": queue, **options})

    return named


@pytest.fixture
def stream(database: str, tmp_path: Path) -> Iterator[Streams]:
    """Streams over a queue, with options, each with the checkpoint of its name."""
    from spark.tests.protocol import Stream

    made: list[Stream] = []

    def named(name: str = "stream", *, queue: str = "orders", sink: Any = None, **options: Any) -> Stream:
        attempts = options.pop("attempts", 1)
        given = {"dsn": database, "queue": queue, **options}
        made.append(Stream(given, tmp_path / name, sink, attempts))
        return made[-1]

    yield named
    for each in made:
        each.stop()
