"""`spanmq check` before a deploy, and `spanmq worker list` and `stack` while a worker runs."""

from pathlib import Path

import pytest
from tests.cli.program import ask, records, spanmq, started, wait_until

from spanmq import Client

SHOP = """
import threading
from spanmq.tasks import Tasks
tasks = Tasks("orders")
@tasks.task
def invoice(number: int, currency: str = "EUR") -> None: ...
@tasks.task
def hang() -> None:
    threading.Event().wait()
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "checked_shop.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_check_exits_1_when_queued_work_could_not_run(orders: str, shop: Path) -> None:
    def check(*options: str) -> tuple[int, str]:
        done = spanmq("check", "checked_shop:tasks", *options, dsn=None)
        return done.code, done.out

    assert check("--against", orders) == (0, "nothing is queued for these tasks\n")
    with Client(orders) as client:
        client.send("orders", {"task": "invoice", "args": {"number": 1}})
        code, out = check("--against", orders)
        assert code == 0
        assert "1 waiting `invoice` message has no `currency`; it has a default: fine" in out
        client.send("orders", {"task": "ship", "args": {}})
        code, out = check("--against", orders, "--queue", "orders", "--limit", "10")
        assert code == 1
        assert "fails" in out
        done = spanmq("check", "checked_shop:tasks", "--json", dsn=orders)
        assert [(each["task"], each["verdict"], each["is_breaking"]) for each in done.records] == [
            ("invoice", "fits by default", False),
            ("ship", "fails", True),
        ]
        client.queues.purge("orders")
        # What was sent before is told by no shape: it was not sent for tasks of Python.
        assert records("task shapes", "orders", dsn=orders) == []
    refused = spanmq("check", "checked_shop:invoice.function", dsn=orders)
    assert refused.code == 1
    assert spanmq("check", "checked_shop:tasks", "--limit", "0", dsn=orders).code == 1


def test_stack_of_a_handler_that_hangs_is_shown(orders: str, shop: Path) -> None:
    with Client(orders) as client:
        client.send("orders", {"task": "hang", "args": {}})
    with started("worker", "checked_shop:tasks", "--name", "w/1", dsn=orders, cwd=shop):
        wait_until(lambda: ask(orders, "select count(*) > 0 from spanmq.list_workers()"))
        assert [each["worker"] for each in records("worker list", dsn=orders)] == ["w/1"]

        def stack() -> list[str]:
            found = records("worker stack", "w/1", dsn=orders)
            return [each["stack"] for each in found if each["task"] == "hang"]

        wait_until(stack)
        [shown] = stack()
        assert "in hang" in shown
        assert "threading.Event().wait()" in shown
    assert "no worker 'w/2' is running" in spanmq("queue worker-stack", "w/2", dsn=orders).err
