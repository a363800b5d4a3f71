"""A service with pages over a database in which something has happened, and people who look at it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from service.tests.dashboard import scene
from service.tests.dashboard.browser import Browser, browser
from service.tests.running import Running, service, token

from spanmq.testing import new_database, with_database

FORM_TOKEN = re.compile(r'name="form_token" value="([0-9a-f]{64})"')
VERBS = ("send", "receive", "look", "manage")


@dataclass(frozen=True)
class Person:
    """Somebody with a browser: it keeps cookies, and says that it wants HTML."""

    http: httpx.Client

    def get(self, path: str, **query: str | int) -> httpx.Response:
        return self.http.get(path, params=query or None)

    def post(self, path: str, page: str | None = None, /, **fields: str) -> httpx.Response:
        """Send a form that stands on a page (by default the one at the same address)."""
        found = FORM_TOKEN.search(self.http.get(page or path).text)
        given = {"form_token": found.group(1)} if found else {}
        return self.http.post(path, data={**given, **fields})

    def sign_in(self, secret: str) -> httpx.Response:
        return self.post("/sign-in", token=secret)


def rows(dsn: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        return connection.execute(statement.encode()).fetchall()


def person(running: Running) -> Iterator[Person]:
    with running.client() as http:
        http.headers["accept"] = "text/html"
        yield Person(http)


@contextmanager
def signed_in(dsn: str, secret: str, folder: Path) -> Iterator[Person]:
    """A user who has signed in to a service of the test's own."""
    with service(dsn, folder, tokens=True) as running, running.client() as http:
        someone = Person(http)
        assert someone.sign_in(secret).status_code == 303
        yield someone


@pytest.fixture(scope="session")
def scene_template(spanmq_server: str, spanmq_template: str) -> Iterator[str]:
    """The name of a database with the scene, from which others are copied."""
    with new_database(spanmq_server, template=spanmq_template) as name:
        scene.fill(with_database(spanmq_server, name))
        yield name


@pytest.fixture(scope="session")
def scene_database(spanmq_server: str, scene_template: str) -> Iterator[str]:
    """The DSN of a database with the scene; its tests leave it as it is."""
    with new_database(spanmq_server, template=scene_template) as name:
        yield with_database(spanmq_server, name)


@pytest.fixture(scope="session")
def guarded(scene_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service that wants tokens."""
    with service(scene_database, tmp_path_factory.mktemp("guarded"), tokens=True) as started:
        yield started


@pytest.fixture(scope="session")
def tokens(guarded: Running, scene_database: str) -> dict[tuple[str, str], str]:
    """A token for each verb, and for what: one queue, or all."""
    return {
        (verb, queues): token(scene_database, f"{verb} {queues}", queues=queues, verbs=verb)
        for verb in VERBS
        for queues in ("orders", "*")
    }


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests that need no other; its address is theirs to set."""
    with browser("", tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(scope="session")
def busy(
    spanmq_server: str, scene_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """A service in whose scene messages recur, and jobs have run; it stays as it is."""
    with new_database(spanmq_server, template=scene_template) as name:
        dsn = with_database(spanmq_server, name)
        scene.work(dsn)
        with service(dsn, tmp_path_factory.mktemp("busy")) as started:
            yield started


@pytest.fixture
def visitor(guarded: Running) -> Iterator[Person]:
    """Somebody who has not signed in."""
    yield from person(guarded)


@pytest.fixture
def looker(visitor: Person, tokens: dict[tuple[str, str], str]) -> Person:
    """Somebody who may look at everything, and do nothing."""
    assert visitor.sign_in(tokens["look", "*"]).status_code == 303
    return visitor


@pytest.fixture
def filled(spanmq_server: str, scene_template: str) -> Iterator[str]:
    """The DSN of a scene of the test's own."""
    with new_database(spanmq_server, template=scene_template) as name:
        yield with_database(spanmq_server, name)


@pytest.fixture
def keeper(filled: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    """Somebody who may do everything to it, without a token."""
    with service(filled, tmp_path_factory.mktemp("open")) as started:
        yield from person(started)


@pytest.fixture(scope="session")
def keeper_database(spanmq_server: str, scene_template: str) -> Iterator[str]:
    """The DSN of a scene for tests that change nothing."""
    with new_database(spanmq_server, template=scene_template) as name:
        yield with_database(spanmq_server, name)


@pytest.fixture(scope="session")
def open_service(keeper_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service without tokens, for tests that leave it as it is."""
    with service(keeper_database, tmp_path_factory.mktemp("open")) as started:
        yield started


@pytest.fixture
def keeper_once(open_service: Running) -> Iterator[Person]:
    """Somebody who may do everything to it."""
    yield from person(open_service)
