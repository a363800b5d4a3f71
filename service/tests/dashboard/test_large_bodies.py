"""Bodies that are too large for a page are told by their size, and not loaded."""

import re
from collections.abc import Iterator

import pytest
from service.tests.dashboard.conftest import Person, person
from service.tests.running import Running, service
from tests.cli.program import do

from spanmq.client import Client
from spanmq.testing import new_database, with_database

SIZE = 3_000_000
NOISE = (
    "(select jsonb_build_object('noise', string_agg(md5(n::text || random()::text), ''))"
    f" from generate_series(1, {SIZE // 32}) n)"
)
WORDS = "too large to be shown here"


@pytest.fixture(scope="module")
def large(
    spanmq_server: str, spanmq_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """A service with a large message among small ones: in a queue, in its archive, and among its dead letters."""
    with new_database(spanmq_server, template=spanmq_template) as made:
        dsn = with_database(spanmq_server, made)
        with Client(dsn) as client:
            for name in ("live", "gone", "dead"):
                client.queues.create(name)
                client.send(name, {"small": name})
                do(dsn, f"select pgmq.send('{name}', {NOISE})")
            client.archive("gone", [1, 2])
            client.reject(client.receive("dead", 2), "too much")
        with service(dsn, tmp_path_factory.mktemp("large")) as started:
            yield started


@pytest.fixture
def reader(large: Running) -> Iterator[Person]:
    """Somebody who may do everything to it, and changes nothing."""
    yield from person(large)


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
def test_large_body_is_told_by_its_size(reader: Person, path: str, query: dict[str, str], small: str) -> None:
    text = reader.get(path, **query).text
    assert re.search(rf"\([1-3]\.\d MB, {WORDS}\)", text)
    assert small in text
    assert len(text) < 100_000


def test_large_letter_is_not_repaired_in_a_form(reader: Person) -> None:
    assert reader.get("/queue/dead-letters/repair?queue=dead&id=2").status_code == 413
    assert reader.get("/queue/dead-letters/repair?queue=dead&id=1").status_code == 200
