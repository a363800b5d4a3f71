"""`spanmq push` to a real HTTP server: what is sent, and what the answers do to the messages."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from standardwebhooks import Webhook, WebhookVerificationError
from tests.cli.program import Done, spanmq
from tests.webhook import Hook
from tests.worker.running import Record, Running

from spanmq import Client
from spanmq.push import Endpoint, push_worker
from spanmq.worker.event import MessageSettled

SECRETS = ["whsec_" + base64.b64encode(bytes([n]) * 32).decode() for n in range(3)]


@pytest.fixture
def hook() -> Iterator[Hook]:
    opened = Hook()
    yield opened
    opened.close()


def push(dsn: str, *arguments: str | int, secrets: str = SECRETS[0], allow: str = "127.0.0.0/8") -> Done:
    """Run the command until nothing is visible; one request after the other."""
    words = ("push", "orders", *arguments, "--until-empty", "--concurrency", 1, "--allow", allow)
    return spanmq(*words, dsn=dsn, more={"SPANMQ_PUSH_SECRETS": secrets})


def failures(client: Client, ids: list[int]) -> list[tuple[str, str | None, str]]:
    found = [client.inspect.failures("orders", each)[-1] for each in ids]
    return [(each.category, each.error_class, each.outcome) for each in found]


def test_requests_are_signed_and_their_answers_settle_the_messages(
    client: Client, database: str, hook: Hook
) -> None:
    client.queues.set_policy("orders", backoff_base=600, jitter=False)
    ids = client.send_batch("orders", [{"n": n, "price": "ü"} for n in range(8)])
    hook.text = "x" * 100_000
    hook.answers = [200, 204, 410, 500, 302, 404, 408, (503, {"Retry-After": "7200"})]
    private = Ed25519PrivateKey.generate()
    key = "whsk_" + base64.b64encode(private.private_bytes_raw()).decode()
    done = push(database, hook.url, secrets=f"{SECRETS[0]} {SECRETS[1]} {key}")
    assert (done.code, done.out) == (0, "handled: 8\n"), done.err
    requests = hook.all()
    assert [each.status for each in requests] == [200, 204, 410, 500, 302, 404, 408, 503]
    assert {each.path for each in requests} == {"/services/secret-of-mine"}, "no redirect was followed"
    for n, request in enumerate(requests):
        for secret in SECRETS[:2]:
            assert Webhook(secret).verify(request.body, request.headers) == {"n": n, "price": "ü"}
        with pytest.raises(WebhookVerificationError):
            Webhook(SECRETS[2]).verify(request.body, request.headers)
        signature = request.headers["webhook-signature"].split(" ")[2].removeprefix("v1a,")
        signed = ".".join(request.headers[each] for each in ("webhook-id", "webhook-timestamp"))
        private.public_key().verify(base64.b64decode(signature), signed.encode() + b"." + request.body)
        assert request.headers["content-type"] == "application/json"
    assert len({each.headers["webhook-id"] for each in requests}) == 8
    assert failures(client, ids[2:]) == [
        ("PERMANENT", "HTTP 410", "dead"),
        ("DEPENDENCY", "HTTP 500", "retrying"),
        ("UNKNOWN", "HTTP 302", "retrying"),
        ("UNKNOWN", "HTTP 404", "retrying"),
        ("DEPENDENCY", "HTTP 408", "retrying"),
        ("DEPENDENCY", "HTTP 503", "retrying"),
    ]
    delays = [
        round((last.retry_at - last.failed_at).total_seconds())
        for last in (client.inspect.failures("orders", each)[-1] for each in ids[3:])
        if last.retry_at is not None
    ]
    assert delays == [600, 600, 600, 600, 7200]
    [dead] = client.dead_letters.list("orders")
    error = dead.error or ""
    assert error.startswith("127.0.0.1 answered 410 you sent to … xxx")
    assert len(error) < 1_100
    assert "secret" not in error + done.err
    # The same message has the same id: an endpoint that has it already recognises it.
    client.dead_letters.redrive("orders", delay=0)
    assert push(database, hook.url).code == 0
    assert hook.next().headers["webhook-id"] == requests[2].headers["webhook-id"]


def test_private_addresses_and_silent_endpoints_fail_the_message(
    client: Client, database: str, hook: Hook
) -> None:
    client.queues.set_policy("orders", backoff_base=600, jitter=False)
    urls = [
        hook.url,
        hook.url.replace("127.0.0.1", "localhost"),
        hook.url.replace("127.0.0.1", "[::ffff:7f00:1]"),
    ]
    ids = []
    for url in urls:
        ids += client.send_batch("orders", [1])
        assert push(database, url, allow="10.0.0.0/8").code == 0
    assert hook.all() == []
    assert failures(client, ids) == [("UNKNOWN", "AddressRefusedError", "retrying")] * 3
    error = client.inspect.failures("orders", ids[0])[0].error or ""
    assert "127.0.0.1 is private" in error
    hook.answers = [0]
    ids = client.send_batch("orders", [1])
    assert push(database, hook.url, "--timeout", "0.2").code == 0
    ids += client.send_batch("orders", [1])
    assert push(database, "http://127.0.0.1:1/secret").code == 0
    assert failures(client, ids) == [
        ("DEPENDENCY", "TimeoutError", "retrying"),
        ("DEPENDENCY", "ConnectionRefusedError", "retrying"),
    ]
    assert "secret" not in str(client.inspect.failures("orders", ids[1]))


def test_endpoint_that_asks_for_a_pause_gets_no_other_message_meanwhile(
    client: Client, database: str, hook: Hook
) -> None:
    client.send_batch("orders", [1, 2])
    hook.answers = [(429, {"Retry-After": "1"})]
    assert push(database, hook.url).code == 0
    first, second, *_ = hook.all()
    assert second.at - first.at >= 1.0


def test_endpoint_that_asks_for_a_pause_closes_the_rate_bucket_for_all_workers(
    client: Client, database: str, hook: Hook
) -> None:
    client.queues.set_policy("orders", rate_limit=1_000)
    client.send("orders", 1)
    hook.answers = [(429, {"Retry-After": "3600"})]
    assert push(database, hook.url).code == 0
    client.send("orders", 2)
    assert client.receive("orders") == []
    client.queues.set_policy("orders", rate_limit=None)
    assert [message.body for message in client.receive("orders")] == [2]


def test_worker_that_stops_releases_what_waits_for_an_endpoint(
    client: Client, database: str, hook: Hook
) -> None:
    ids = client.send_batch("orders", [1, 2])
    hook.answers = [(429, {"Retry-After": "3600"})]
    record = Record()
    endpoint = Endpoint(hook.url, SECRETS[0])
    worker = push_worker(
        "orders", endpoint, allow=["127.0.0.1"], dsn=database, concurrency=1, observers=[record]
    )
    running = Running(worker, record)
    record.wait(MessageSettled)
    running.stop()
    assert len(hook.all()) == 1
    assert [client.inspect.state("orders", each) for each in ids] == ["failed", "pending"]
    assert [each.attempt for each in client.peek("orders")] == [1, 0]


def test_endpoint_that_is_down_holds_only_its_own_group(
    client: Client, database: str, hook: Hook, tmp_path: Path
) -> None:
    path = tmp_path / "endpoints.toml"
    tables = [
        f'[{name}]\nurl = "{hook.url.replace("services", name)}"\nsecrets = ["{secret}"]\n'
        for name, secret in zip("ab", SECRETS, strict=False)
    ]
    path.write_text("".join(tables))
    options = ("--endpoints", str(path))
    done = push(database, *options)
    assert (done.code, "the queue orders is not ordered" in done.err) == (1, True)
    client.queues.set_policy("orders", ordered=True, backoff_base=600, jitter=False)
    sent = {group: client.send_batch("orders", [group] * 3, group=group) for group in "abc"}
    hook.answers = [500]
    assert push(database, *options).code == 0
    requests = hook.all()
    paths = [each.path.split("/")[1] for each in requests]
    assert paths.count(paths[0]) == 1, "the endpoint that is down was asked once"
    assert sorted(paths) == sorted([paths[0], *["ab".replace(paths[0], "")] * 3])
    for request in requests:
        secret = SECRETS["ab".index(json.loads(request.body))]
        Webhook(secret).verify(request.body, request.headers)
    assert failures(client, [sent["c"][0]]) == [("UNKNOWN", "NoEndpoint", "retrying")]
    assert [client.inspect.state("orders", each) for each in sent["c"]] == ["failed", "pending", "pending"]


def test_command_needs_one_target_and_secrets(database: str, tmp_path: Path) -> None:
    url = "https://a.example/secret"
    missing = str(tmp_path / "none.toml")
    for words, secrets, reason in (
        (("push", "orders"), "", "Name either a URL or --endpoints"),
        (("push", "orders", url, "--endpoints", missing), "", "Name either a URL or --endpoints"),
        (("push", "orders", url), "", "SPANMQ_PUSH_SECRETS has no secret"),
        (("push", "orders", url, "--unsigned"), SECRETS[0], "--unsigned, too"),
        (("push", "orders", "ftp://a.example/secret", "--unsigned"), "", "must begin with https://"),
        (("push", "orders", "--endpoints", missing), "", "No such file"),
        (("push", "orders", url, "--unsigned", "--allow", "ten"), "", "an allowed network"),
    ):
        done = spanmq(*words, dsn=database, more={"SPANMQ_PUSH_SECRETS": secrets})
        assert done.code in (1, 2)
        assert reason in done.err
        assert "a.example/secret" not in done.err
