"""A queue and sessions for it; whatever a test does, the invariants hold at its end."""

from collections.abc import Iterator

import pytest
from tests.sql.model.invariants import broken_invariants
from tests.sql.races.sessions import Race


@pytest.fixture
def race(database: str) -> Iterator[Race]:
    with Race(database) as opened:
        yield opened
        assert broken_invariants(opened.main.connection) == []
