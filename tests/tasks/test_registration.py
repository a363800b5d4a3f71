"""A worker runs a task only from the queues for which it is registered."""

from importlib import import_module
from pathlib import Path

import pytest
from tests.tasks.shop import working

from spanmq import Client
from spanmq.errors import InvalidArgumentError
from spanmq.tasks import Tasks


async def test_task_runs_only_from_queues_for_which_it_is_registered(client: Client, database: str) -> None:
    client.queues.create("payments")
    client.queues.create("urgent")
    # What is refused does not come again within the test.
    client.queues.set_policy("mail", backoff_base=600, jitter=False)
    bank = Tasks("payments", dsn=database)
    refunded: list[int] = []

    @bank.task(queues=["Urgent"])
    async def refund(number: int) -> None:
        refunded.append(number)

    @bank.task(queue="mail")
    async def remind(number: int) -> None: ...

    # A sender that may send to `mail` asks for the task of another queue.
    client.send("mail", {"task": "refund", "args": {"number": 1}})
    refund.using(queue="urgent").send(2)
    async with working(bank, concurrency=1) as outcomes:
        events = {(each := await outcomes.next()).queue.lower(): each for _ in range(2)}
    assert refunded == [2]
    assert events["mail"].error_class == "spanmq.errors.UnknownTaskError"
    assert "task 'refund' is not registered for queue 'mail'" in (events["mail"].error or "")
    assert events["urgent"].outcome == "acked"
    with pytest.raises(InvalidArgumentError, match="task 'refund' is not registered for queue 'mail'"):
        refund.using(queue="mail")
    with pytest.raises(InvalidArgumentError, match="no task is registered for queue 'orders'"):
        bank.worker(["payments", "orders"])

    lax = Tasks("payments", dsn=database, strict=False)
    lax.task(queue="payments", name="refund")(refund.function)
    lax.task(queue="mail", name="remind")(remind.function)
    client.send("mail", {"task": "refund", "args": {"number": 3}})
    async with working(lax) as outcomes:
        await outcomes.next()
    assert refunded[-1] == 3
    bank.close()
    lax.close()


def test_worker_imports_the_modules_that_register_further_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    (tmp_path / "depot.py").write_text(
        "from spanmq.tasks import Tasks\ntasks = Tasks('depot', modules=['depot_billing'], create=True)\n"
        "@tasks.task\ndef ship() -> None: ...\n"
    )
    (tmp_path / "depot_billing.py").write_text(
        "from depot import tasks\n@tasks.task(queue='bills')\ndef bill() -> None: ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    tasks = import_module("depot").tasks
    assert tasks.queues == ("depot",)
    tasks.connect(database)
    tasks.create_queues()
    tasks.create_queues()
    with Client(database) as client:
        assert [each.name for each in client.queues.list()] == ["depot", "bills"]
    assert tasks.queues == ("depot", "bills")
    tasks.close()
    with pytest.raises(InvalidArgumentError, match="module 'no_such' does not exist"):
        Tasks("orders", modules=["no_such"]).load()
    with pytest.raises(InvalidArgumentError, match="a list of names"):
        Tasks("orders", modules="shop.billing")


async def test_unknown_task_is_refused_with_those_that_are_known(client: Client, own: Tasks) -> None:
    for number in range(22):
        own.task(name=f"task{number:02}")(lambda: None)
    client.send("orders", {"task": "bill", "args": {}})
    async with working(own, concurrency=1) as outcomes:
        error = (await outcomes.next()).error or ""
    assert "this worker has no task 'bill'" in error
    assert "It has task00, task01," in error
    assert "task19 and 2 more. Is the module imported" in error
