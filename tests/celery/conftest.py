"""A database of the test's own, which `spanmq://` names, and connections of kombu to it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import kombu
import pytest

import spanmq.celery  # noqa: F401, kombu knows the transport by it

Connect = Callable[..., kombu.Connection]


@pytest.fixture
def broker(database: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("SPANMQ_DSN", database)
    return "spanmq://"


@pytest.fixture
def connect(broker: str) -> Iterator[Connect]:
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(kombu.Connection(broker, transport_options=options))
