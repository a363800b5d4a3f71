"""Keys by commands, and commands and the service with the keys of their environment."""

import hashlib
import json
import stat
from pathlib import Path

import httpx
from service.tests.running import service
from service.tests.sqs.conftest import client_of
from tests.cli.program import ask, records, spanmq

from spanmq.client import Client
from spanmq.codec import encryption as sealing
from spanmq.codec.encryption import Encryption

SECRET = "a body that nobody may read"
STORED = "select jsonb_agg(message::text) from pgmq.q_orders"


def test_file_of_keys_is_its_owners_and_tells_which_are_in_use(database: str, tmp_path: Path) -> None:
    path = tmp_path / "keys"
    for key_id in ("first", "second"):
        [made] = records("encryption add-key", str(path), "--id", key_id, dsn=database)
        assert made["key"] == key_id
        path.write_text(path.read_text().rstrip("\n"))  # as some editors leave it
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert spanmq("encryption add-key", str(path), "--id", "first", dsn=database).code == 1
    with Client(database, encryption=Encryption.from_file(path)) as opened:
        opened.queues.create("orders")
        opened.send_batch("orders", [1, 2, 3])
        opened.reject(opened.receive("orders", 2))
        opened.dead_letters.redrive("orders", limit=1)
        opened.schedules.create("daily", "orders", "0 3 * * *", {"report": True})
        opened.queues.create("others")
        opened.schedules.create("other", "others", "0 3 * * *", 1)
        opened.batches.create("orders", "all are done", {"orders": [2]})
    assert records("encryption in-use", "orders", dsn=database) == [
        {"where": "messages", "key": "second", "bodies": 2},
        {"where": "dead letters", "key": "second", "bodies": 2},
        {"where": "schedules", "key": "second", "bodies": 1},
        {"where": "batches", "key": "second", "bodies": 1},
    ]


def test_file_that_is_not_text_gets_no_key(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes(b"\xff")
    done = spanmq("encryption add-key", str(path), dsn=None)
    assert (done.code, done.out) == (1, "")
    assert done.err == f"spanmq: encryption: the file of keys {str(path)!r} is not UTF-8\n"
    assert path.read_bytes() == b"\xff"


def test_commands_and_the_service_open_with_the_keys_of_their_environment(
    database: str, tmp_path: Path
) -> None:
    path = tmp_path / "keys"
    spanmq("encryption add-key", str(path), dsn=database)
    keys = {sealing.FILE_VARIABLE: str(path)}
    spanmq("queue create", "orders", dsn=database)
    spanmq("send", "orders", json.dumps(SECRET), dsn=database, more=keys)
    with service(database, tmp_path, more=keys) as running, running.client() as http:
        assert http.post("/v1/queues/orders/messages", json={"body": SECRET}).status_code == 201
        assert not any("nobody" in each for each in ask(database, STORED))
        messages = http.post("/v1/queues/orders/receive", json={"quantity": 10}).json()["messages"]
    assert [each["body"] for each in messages] == [SECRET] * 2


def test_service_stores_no_plain_hash_of_a_body_and_opens_what_its_environment_trusts(
    database: str, tmp_path: Path
) -> None:
    path = tmp_path / "keys"
    spanmq("encryption add-key", str(path), dsn=database)
    more = {sealing.FILE_VARIABLE: str(path), sealing.ONLY_SEALED_VARIABLE: "true"}

    def send(http: httpx.Client, queue: str) -> object:
        headers = {"Idempotency-Key": "k"}
        return http.post(f"/v1/queues/{queue}/messages", json={"body": SECRET}, headers=headers).json()

    with service(database, tmp_path) as running, running.client() as http:
        sqs = client_of(running.address)
        fifo = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
        sqs.create_queue(QueueName="orders.fifo", Attributes=fifo)
        for queue in ("plain", "orders"):
            http.put(f"/v1/queues/{queue}")
        send(http, "plain")
    with service(database, tmp_path, more=more) as running, running.client() as http:
        sqs = client_of(running.address)
        url = sqs.get_queue_url(QueueName="orders.fifo")["QueueUrl"]
        for _ in range(2):
            sqs.send_message(QueueUrl=url, MessageBody=SECRET, MessageGroupId="g")
            assert send(http, "orders") == {"message_id": 1}
        [shown] = http.get("/v1/queues/plain/messages").json()["messages"]
        assert "spanmq.unopened" in shown["body"]
        [received] = sqs.receive_message(QueueUrl=url, AttributeNames=["All"])["Messages"]
    digest = hashlib.sha256(SECRET.encode()).hexdigest()
    assert received["Body"] == SECRET
    assert received["Attributes"]["MessageDeduplicationId"] != digest
    assert ask(database, f"select count(*) from spanmq_core.deduplication where dedup_id ~ '{digest}'") == 0
    assert ask(database, "select count(distinct fingerprint) from spanmq_core.deduplication") == 2
