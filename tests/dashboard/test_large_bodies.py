"""Bodies that are too large for a page are told by their size, and not loaded."""

import re

import pytest
from tests.cli.program import do
from tests.dashboard.conftest import Person

from spanmq.client import Client

SIZE = 3_000_000
NOISE = (
    "(select jsonb_build_object('noise', string_agg(md5(n::text || random()::text), ''))"
    f" from generate_series(1, {SIZE // 32}) n)"
)
WORDS = "too large to be shown here"


@pytest.fixture
def large(filled: str) -> str:
    """A large message among small ones: in a queue, in its archive, and among its dead letters."""
    with Client(filled) as client:
        for name in ("live", "gone", "dead"):
            client.queues.create(name)
            client.send(name, {"small": name})
            do(filled, f"select pgmq.send('{name}', {NOISE})")
        client.archive("gone", [1, 2])
        client.reject(client.receive("dead", 2), "too much")
    return filled


@pytest.mark.parametrize(
    ("path", "query", "small"),
    [
        ("/queue/messages", {"queue": "live"}, "live"),
        ("/queue/dead-letters", {"queue": "dead"}, "dead"),
        ("/message", {"queue": "live", "id": "2"}, ""),
        ("/message", {"queue": "gone", "id": "2"}, ""),
        ("/message", {"queue": "dead", "id": "2"}, ""),
    ],
)
def test_large_body_is_told_by_its_size(
    keeper: Person, large: str, path: str, query: dict[str, str], small: str
) -> None:
    text = keeper.get(path, **query).text
    assert re.search(rf"\([1-3]\.\d MB, {WORDS}\)", text)
    assert small in text
    assert len(text) < 100_000


def test_large_letter_is_not_repaired_in_a_form(keeper: Person, large: str) -> None:
    assert keeper.get("/queue/dead-letters/repair?queue=dead&id=2").status_code == 413
    assert keeper.get("/queue/dead-letters/repair?queue=dead&id=1").status_code == 200
