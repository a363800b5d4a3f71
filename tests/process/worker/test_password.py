"""A password that changes while programs run: each new connection has the one of its time."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from tests.worker.running import working

from spanmq import Client, embedded
from spanmq.errors import ConnectionFailedError, InvalidArgumentError
from spanmq.worker.event import MessageSettled


@pytest.fixture(scope="module")
def owner() -> Iterator[psycopg.Connection[Any]]:
    """A connection to a server of its own, on which the role `shop` needs its password."""
    with embedded.temporary() as server, psycopg.connect(server.dsn, autocommit=True) as connection:
        [place] = connection.execute("show hba_file").fetchone() or ()
        rules = Path(place)
        rules.write_text(
            f"local all shop scram-sha-256\nhost all shop all scram-sha-256\n{rules.read_text()}"
        )
        connection.execute("create role shop login")
        connection.execute("select pg_reload_conf()")
        with Client(server.dsn) as client:
            client.install()
            client.queues.create("orders")
        for verb in ("send", "receive"):
            connection.execute("select spanmq.grant_all('shop', %s)", [verb])
        yield connection


class Rotating:
    """A password in a file, as a store of secrets provides it."""

    def __init__(self, owner: psycopg.Connection[Any], file: Path) -> None:
        self.file = file
        self.dsn = make_conninfo(owner.info.dsn, user="shop")
        self._owner = owner

    def rotate(self, password: str) -> None:
        """Change it, and end the sessions that began with the one before."""
        self._owner.execute(f"alter role shop password '{password}'")
        self.file.write_text(f"{password}\n")
        self._owner.execute(
            "select pg_terminate_backend(pid, 20000) from pg_stat_activity where usename = 'shop'"
        )

    def read(self) -> str:
        return self.file.read_text().strip()


@pytest.fixture
def rotating(owner: psycopg.Connection[Any], tmp_path: Path) -> Rotating:
    password = Rotating(owner, tmp_path / "a password")
    password.rotate("first")
    return password


def test_worker_and_client_with_a_function_outlive_a_rotation(rotating: Rotating) -> None:
    with (
        Client(rotating.dsn, password=rotating.read) as client,
        working(rotating.dsn, lambda message: None, password=rotating.read) as record,
    ):
        client.send("orders", 1)
        record.wait(MessageSettled, 1)
        rotating.rotate("second")
        client.send("orders", 2)
        record.wait(MessageSettled, 2)


def test_command_of_the_environment_is_run_for_each_connection(
    rotating: Rotating, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPANMQ_PASSWORD_COMMAND", f"cat {shlex.quote(str(rotating.file))}")
    with Client(rotating.dsn) as client:
        client.send("orders", 1)
        rotating.rotate("second")
        assert client.queues.metrics("orders").length > 0
    # A DSN with a password keeps it.
    with pytest.raises(ConnectionFailedError, match="password authentication failed"):
        Client(make_conninfo(rotating.dsn, password="first")).open()


def test_failing_command_and_function_are_reported_without_the_output(
    rotating: Rotating, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPANMQ_PASSWORD_COMMAND", "sh -c 'echo secret; echo no ticket >&2; exit 3'")
    with pytest.raises(ConnectionFailedError, match=r"exit code 3, no ticket$") as caught:
        Client(rotating.dsn).open()
    assert "secret" not in str(caught.value)
    with pytest.raises(ConnectionFailedError, match=r"function for the password failed: KeyError\('x'\)"):
        Client(rotating.dsn, password=lambda: dict[str, str]()["x"]).open()
    with pytest.raises(InvalidArgumentError, match="password must be a function"):
        Client(rotating.dsn, password="first")  # type: ignore[arg-type]
