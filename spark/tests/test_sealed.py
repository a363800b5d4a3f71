"""Sealed bodies: opened and sealed with keys from a file, and never taken for other ones."""

import json
from pathlib import Path

import pytest
from spark.tests.conftest import Load, Streams
from spark.tests.protocol import save, sink_to
from typer.testing import CliRunner

from spanmq.cli.app import app
from spanmq.client import Client
from spanmq.errors import DecryptionError, EncryptionError, InvalidBodyError

pytest.importorskip("cryptography")

from spanmq.codec.encryption import SEALED_KEY, Encryption, new_line


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    path = tmp_path / "keys"
    path.write_text(new_line("first") + "\n")
    return str(path)


@pytest.fixture
def sealing(client: Client, database: str, key_file: str) -> Client:
    """A client that seals; the queue has three of its messages, and one that is not sealed."""
    with_keys = Client(database, encryption=Encryption.from_file(key_file))
    with_keys.send_batch("orders", [{"order": i} for i in range(3)])
    client.send("orders", {"order": 3})
    return with_keys


def test_sealed_bodies_are_opened_with_the_keys_of_a_file(sealing: Client, load: Load, key_file: str) -> None:
    rows = load(encryptionKeyFile=key_file).rows()
    assert [json.loads(row["body"])["order"] for row in rows] == [0, 1, 2, 3]
    stored = [json.loads(row["body"]) for row in load().rows()]
    assert [SEALED_KEY in body for body in stored] == [True, True, True, False]


def test_sealed_bodies_that_can_not_be_opened_are_said(
    sealing: Client, load: Load, tmp_path: Path, key_file: str
) -> None:
    other = tmp_path / "other"
    other.write_text(new_line("second") + "\n")
    with pytest.raises(
        DecryptionError, match="sealed under the key 'first', which this program does not have"
    ):
        load(encryptionKeyFile=str(other)).rows()
    with pytest.raises(EncryptionError, match="can't be read"):
        load(encryptionKeyFile=str(tmp_path / "none")).rows()


def test_stream_opens_sealed_bodies_and_goes_on_where_it_had_no_keys(
    sealing: Client, stream: Streams, tmp_path: Path, key_file: str
) -> None:
    # The queue by another spelling than what bodies were sealed for.
    lake = stream(queue="Orders")
    other = tmp_path / "other"
    other.write_text(new_line("second") + "\n")
    with pytest.raises(DecryptionError, match="which this program does not have"):
        lake.run(encryptionKeyFile=str(other))
    lake.run(encryptionKeyFile=key_file)
    rows = [(row["queue"], json.loads(row["body"])["order"]) for epoch in lake.lake.values() for row in epoch]
    assert rows == [("orders", i) for i in range(4)]
    assert sealing.queues.metrics("orders").length == 0


def test_stream_sends_on_sealed_what_a_subscription_gets(
    sealing: Client, load: Load, stream: Streams, database: str, key_file: str
) -> None:
    sealing.queues.create("copies")
    sealing.subscriptions.create("lake", "orders", waiting=True)
    keys = {"encryptionKeyFile": key_file}
    relay = stream(queue="lake", columns="body", sink=sink_to(load("copies", **keys).source), **keys)
    with pytest.raises(DecryptionError, match="the body was sealed for 'orders'"):
        relay.run()
    assert sealing.queues.metrics("copies").length == 0
    relay.run(encryptionTrusted="orders")
    with Client(database) as without_keys:
        assert [SEALED_KEY in each.body for each in without_keys.peek("copies", 10)] == 4 * [True]
    assert sorted(each.body["order"] for each in sealing.receive("copies", 10)) == [0, 1, 2, 3]
    assert sealing.queues.metrics("lake").length == 0


def test_stream_over_an_archive_opens_sealed_bodies(sealing: Client, stream: Streams, key_file: str) -> None:
    sealing.archive("orders", [each.message_id for each in sealing.receive("orders", 10)])
    lake = stream(table="archive", encryptionKeyFile=key_file)
    lake.run()
    assert [json.loads(row["body"]) for row in lake.lake[1]] == [{"order": i} for i in range(4)]


def test_frame_is_sent_sealed(client: Client, load: Load, database: str, key_file: str) -> None:
    source = load(encryptionKeyFile=key_file)
    with pytest.raises(InvalidBodyError, match="not valid JSON"):
        save(source, {"body": ["{broken"]})
    save(source, {"body": ["0", "1"]}, {"body": ["2"]})
    assert all(SEALED_KEY in each.body for each in client.peek("orders", 10))
    with Client(database, encryption=Encryption.from_file(key_file)) as opening:
        assert sorted(each.body for each in opening.receive("orders", 10)) == [0, 1, 2]


def test_keys_that_executors_can_not_read_send_nothing_unsealed(client: Client, database: str) -> None:
    done = CliRunner().invoke(
        app,
        ["pipeline", "backfill", "orders", "none", "--job-id", "one", "--dsn", database],
        env={"SPANMQ_ENCRYPTION_KEYS": "first " + "A" * 43 + "="},
    )
    assert done.exit_code == 1
    assert "pass --key-file" in done.output
    assert client.queues.metrics("orders").length == 0
