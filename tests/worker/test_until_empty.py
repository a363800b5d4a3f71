"""A worker that ends when its queues have nothing visible."""

from pathlib import Path

import pytest
from tests.cli.program import spanmq
from tests.worker.running import working

from spanmq import Client, Message, RetryAfter, RetryIn
from spanmq.model import PolicyChange
from spanmq.worker.event import MessageSettled, WorkerStopping

QUEUES = [f"q{number}" for number in range(12)]


@pytest.mark.parametrize("concurrency", [1, 20])
def test_worker_until_empty_handles_what_is_sent_meanwhile_and_leaves_what_is_not_visible(
    client: Client, database: str, concurrency: int
) -> None:
    for queue in QUEUES:
        client.queues.create(queue)
    client.send("q0", "later", delay=3600)
    client.send("q1", "fails")
    client.send("q2", 30)

    def handle(message: Message) -> None:
        if message.body == "fails":
            raise RetryIn(0 if message.attempt == 1 else 3600)
        if message.body:
            client.send(QUEUES[message.body % len(QUEUES)], message.body - 1)

    with working(database, handle, queues=QUEUES, until_empty=True, concurrency=concurrency) as record:
        record.running.join()
    assert record.running.handled == 31 + 2
    assert record.of(WorkerStopping)[0].reason == "empty"
    assert {each.queue: each.length for each in client.queues.metrics_all() if each.length} == {
        "q0": 1,
        "q1": 1,
    }


@pytest.mark.parametrize("settings", [{"rate_limit_per_group": 1000}, {"rate_limit": 1000}])
def test_handler_that_is_told_to_come_later_closes_the_bucket(
    client: Client, database: str, settings: PolicyChange
) -> None:
    client.queues.set_policy("orders", **settings)
    client.send("orders", "told", group="a")

    def handle(message: Message) -> None:
        if message.body == "told":
            raise RetryAfter(3600, "429 Too Many Requests")

    def run() -> dict[int, str]:
        with working(database, handle, until_empty=True) as record:
            record.running.join()
        return {each.message_id: each.outcome for each in record.of(MessageSettled)}

    assert run() == {1: "retrying"}
    client.send_batch("orders", [1, 2], group=["a", "b"])
    is_of_group = "rate_limit_per_group" in settings
    assert run() == ({3: "acked"} if is_of_group else {})
    why = client.inspect.explain("orders", 2)
    assert (why[0].code, why[0].until is not None) == ("group_rate" if is_of_group else "rate", True)
    [failing] = client.inspect.failing_messages("orders")
    assert (failing.category, failing.error) == ("TRANSIENT", "429 Too Many Requests")


def test_command_without_a_breaker_goes_on_while_all_fails(
    client: Client, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.queues.set_policy("orders", max_attempts=1)
    client.send_batch("orders", range(100))
    (tmp_path / "failing_jobs.py").write_text("def ship(message):\n    raise ConnectionError('down')\n")
    monkeypatch.chdir(tmp_path)
    arguments = ("failing_jobs:ship", "-q", "orders", "--until-empty", "--no-breaker")
    done = spanmq("worker", *arguments, dsn=database)
    assert (done.code, done.out.splitlines()[-1]) == (0, "handled: 100")
    assert "breaker_" not in done.err


def test_command_until_empty_prints_how_many_were_handled(client: Client, database: str) -> None:
    client.send_batch("orders", [1, 2, 3])
    done = spanmq("worker", "builtins:print", "-q", "orders", "--until-empty", dsn=database)
    assert (done.code, done.out.splitlines()[-1]) == (0, "handled: 3")
