"""Folders and a server for the tests of the embedded server."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.process.embedded.processes import end_all, parent_folder

from spanmq import embedded


@pytest.fixture(autouse=True)
def nothing_runs_on() -> Iterator[None]:
    """End what a test has started and not ended: a later test would be told of it."""
    yield
    end_all()


@pytest.fixture
def parent() -> Iterator[Path]:
    """A folder that everybody may enter; pytest's own are closed, also to the user that root becomes."""
    with parent_folder() as path:
        yield path


@pytest.fixture
def folder(parent: Path) -> Path:
    return parent / "postgres"


@pytest.fixture(scope="module")
def temporary() -> Iterator[embedded.TemporaryServer]:
    with embedded.temporary() as server:
        yield server
