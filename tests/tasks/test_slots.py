"""How tasks share the slots of a worker, and the limits of queues and tasks."""

import asyncio
import threading

from tests.tasks.shop import done, working

from spanmq import Client
from spanmq.tasks import Tasks


async def test_limit_of_a_queue_holds(client: Client, database: str) -> None:
    limited = Tasks("orders", dsn=database, limits={"mail": 2})
    lock, running, most = threading.Lock(), 0, 0
    both = threading.Barrier(2)

    @limited.task(queue="mail")
    def work(number: int) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        both.wait()
        with lock:
            running -= 1

    limited.send_many([work.call(number) for number in range(20)])
    async with working(limited) as outcomes:
        assert await outcomes.all(20) == ["acked"] * 20
    assert most == 2
    limited.close()


async def test_queues_share_the_slots_by_their_weights(client: Client, database: str) -> None:
    shared = Tasks("orders", dsn=database, weights={"orders": 3})
    begun: list[str] = []
    begins, release = threading.Semaphore(0), threading.Event()

    def work(queue: str) -> None:
        begun.append(queue)
        begins.release()
        release.wait()

    for queue in ("orders", "mail"):
        task = shared.task(name=f"work on {queue}", queue=queue)(work)
        shared.send_many([task.call(queue) for _ in range(6)])
    async with working(shared, concurrency=4) as outcomes:
        for _ in range(4):
            await asyncio.to_thread(begins.acquire)
        assert sorted(begun) == ["mail", "orders", "orders", "orders"]
        release.set()
        assert await outcomes.all(12) == ["acked"] * 12
    shared.close()


async def test_limit_of_a_task_holds_up_no_other(own: Tasks) -> None:
    begun: list[int] = []
    begins, release = threading.Semaphore(0), threading.Event()

    @own.task(concurrency=2)
    def work(number: int) -> None:
        begun.append(number)
        begins.release()
        release.wait()

    @own.task
    def count() -> None:
        for _ in range(2):
            begins.acquire()
        done.append(len(begun))
        release.set()

    own.send_many([*(work.call(number) for number in range(5)), count.call()])
    async with working(own) as outcomes:
        assert await outcomes.all(6) == ["acked"] * 6
    assert (done, sorted(begun)) == ([2], [*range(5)])


async def test_stop_gives_back_what_waits_for_its_limit(client: Client, own: Tasks) -> None:
    begun = threading.Event()
    release = threading.Event()

    @own.task(concurrency=1)
    def work(number: int) -> None:
        begun.set()
        release.wait()

    own.send_many([work.call(number) for number in range(5)])
    async with working(own, grace=0.05) as outcomes:
        await asyncio.to_thread(begun.wait)
    assert await outcomes.all(5) == ["released"] * 5
    release.set()
    assert len(client.receive("orders", 10)) == 5
