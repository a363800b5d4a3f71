"""What a worker of tasks reports to the database."""

from tests.tasks import shop
from tests.tasks.shop import working

from spanmq import Client


async def test_worker_reports_itself_and_its_kinds_of_tasks(client: Client) -> None:
    async with working(name="packer", concurrency=3) as outcomes:
        shop.mail.send("ada@shop")
        shop.fail.send("reject")
        client.send("orders", {"task": "unheard of"})
        assert await outcomes.all(3) == ["acked", "dead", "retrying"]
    assert client.health.workers() == []
    kinds = {each.kind: (each.queue, each.done, each.failed) for each in client.health.task_kinds()}
    assert kinds == {"mail": ("mail", 1, 0), "fail": ("orders", 0, 1)}
    [kind] = client.health.task_kinds("mail")
    assert 0 < kind.p50 == kind.p95 < 60
