"""A worker runs a task only from the queues for which it is registered."""

import pytest
from tests.tasks.shop import working

from spanmq import Client
from spanmq.errors import InvalidArgumentError
from spanmq.tasks import Tasks


async def test_task_runs_only_from_queues_for_which_it_is_registered(client: Client, database: str) -> None:
    client.queues.create("payments")
    client.queues.create("urgent")
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
