"""The disk under the log is full: a typed error, nothing half done, and on it goes when there is room."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from tests.sql.model.invariants import broken_invariants

from spanmq import embedded, errors, schema
from spanmq.client import Client
from spanmq.model import Message

DISK, ROOM = "24m", "48m"
# What compression can't make smaller.
BODY_BYTES = 4096


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of a few megabytes, where the server's user may pass: pytest's own folders are closed."""
    place = Path(tempfile.mkdtemp(prefix="spanmq-disk-"))
    try:
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(place)]
        mounted = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError:
        place.rmdir()
        pytest.skip("there is no mount here")
    if mounted.returncode != 0:
        place.rmdir()
        pytest.skip(f"a small file system can't be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)
        place.rmdir()


@pytest.fixture
def dsn(small_disk: Path) -> Iterator[str]:
    """A database whose tables lie on the small disk; its WAL does not."""
    with embedded.temporary(settings={"fsync": "off"}) as server:
        owner = (server.folder / "data").stat()
        os.chown(small_disk, owner.st_uid, owner.st_gid)
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute(
                sql.SQL("create tablespace small location {}").format(sql.Literal(str(small_disk)))
            )
            connection.execute("alter database postgres set default_tablespace = small")
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            schema.install(connection)
        yield server.dsn


def fill(client: Client) -> list[int]:
    """Send until the disk is full; give the ids of what was sent."""
    sent: list[int] = []
    for _ in range(10_000):
        try:
            sent += client.send_batch("orders", [os.urandom(BODY_BYTES).hex() for _ in range(10)])
        except errors.ServerExhaustedError:
            return sent
    raise AssertionError("the disk is not full yet")


def ids_in(connection: psycopg.Connection[Any]) -> list[int]:
    rows = connection.execute("select msg_id from pgmq.q_orders order by msg_id").fetchall()
    return [message_id for (message_id,) in rows]


def test_full_disk_refuses_and_loses_nothing(dsn: str, small_disk: Path) -> None:
    with Client(dsn) as client, psycopg.connect(dsn, autocommit=True) as connection:
        client.queues.create("orders")
        sent = fill(client)
        assert len(sent) > 100
        assert ids_in(connection) == sent
        # A claim changes rows in place; what gives messages back may need a page, and is refused as well.
        held: list[Message] = []
        with suppress(errors.ServerExhaustedError):
            held = client.receive("orders", 7, lease=600)
            client.release(held)
        assert ids_in(connection) == sent
        subprocess.run(["mount", "-o", f"remount,size={ROOM}", str(small_disk)], check=True)
        sent += client.send_batch("orders", ["there is room again"])
        client.release(held)
        settled: list[int] = []
        while messages := client.receive("orders", 100, lease=600):
            settled += [each.message_id for each in client.ack(messages) if each.outcome == "acked"]
        assert settled == sent
        assert broken_invariants(connection) == []
