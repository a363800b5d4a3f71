"""What comes back by itself is found when it does, though who waits looks by itself only now and then."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Sequence

import psycopg
import pytest
from service.tests.running import always
from tests.cli.program import do
from tests.patience import WAIT_SECONDS

from spanmq.client import AsyncClient
from spanmq.client._async.inspect import AsyncInspect
from spanmq.client.polling import Due
from spanmq.errors import ConnectionFailedError
from spanmq.model import Message
from spanmq_service import waiting
from spanmq_service.waiting import QUEUES_MAX, Ahead, Waiting

# No second look comes within the wait but the one when something falls due.
NEVER_SECONDS = 3_600.0
DUE_SECONDS = 1.0
WAITERS = 3

Hide = Callable[[AsyncClient, str], Awaitable[object]]


async def delayed(client: AsyncClient, queue: str) -> object:
    return await client.send(queue, "delayed", delay=DUE_SECONDS)


async def failed(client: AsyncClient, queue: str) -> object:
    await client.send(queue, "failed")
    return await client.nack(await client.receive(queue), retry_in=DUE_SECONDS)


async def abandoned(client: AsyncClient, queue: str) -> object:
    await client.send(queue, "abandoned")
    return await client.receive(queue, lease=DUE_SECONDS)


async def found(client: AsyncClient, lines: Waiting, queue: str, begun: asyncio.Event) -> list[Message]:
    """Let some wait; give what the first of them got."""

    async def take() -> list[Message]:
        messages = await client.receive(queue, lease=NEVER_SECONDS)
        begun.set()
        return messages

    async def wait() -> list[Message]:
        return await lines.wait(queue, take, WAIT_SECONDS, asyncio.Event().wait(), permit=always)

    waits = [asyncio.create_task(wait()) for _ in range(WAITERS)]
    done, others = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for each in others:
        each.cancel()
    await asyncio.wait(waits)
    return [message for each in done for message in each.result()]


@pytest.mark.parametrize("is_first", [True, False], ids=["hidden before", "hidden while they wait"])
def test_what_falls_due_is_found_by_who_waits_for_long(database: str, is_first: bool) -> None:
    ways: list[Hide] = [delayed, failed, abandoned] if is_first else [delayed]

    async def run() -> list[Message]:
        async with AsyncClient(database) as client:
            lines = Waiting(client, first=NEVER_SECONDS, longest=NEVER_SECONDS)

            async def one(hide: Hide) -> list[Message]:
                queue, begun = hide.__name__, asyncio.Event()
                await client.queues.create(queue)
                if is_first:
                    await hide(client, queue)
                waits = asyncio.create_task(found(client, lines, queue, begun))
                if not is_first:
                    await begun.wait()
                    await hide(client, queue)
                return await waits

            got = await asyncio.gather(*map(one, ways))
            lines.stop()
            await lines.join()
            return [message for each in got for message in each]

    messages = asyncio.run(run())
    assert [message.body for message in messages] == [way.__name__ for way in ways]


def test_what_fell_due_and_nobody_may_have_leads_from_no_look_to_the_next(database: str) -> None:
    do(database, "select pgmq.create('paused'), spanmq.pause('paused')")
    count = 100
    due = "clock_timestamp() + (500 + 5 * n) * interval '1 ms'"
    do(database, f"select pgmq.send('paused', '1', {due}) from generate_series(1, {count}) n")
    looks, begun = 0, list[asyncio.Task[None]]()

    async def run() -> None:
        async with AsyncClient(database) as client:
            lines = Waiting(client, first=NEVER_SECONDS, longest=NEVER_SECONDS)

            leaving = asyncio.Event()

            async def leave() -> None:
                """Wait until all has fallen due, by the clock that decides that."""
                async with await psycopg.AsyncConnection.connect(database) as connection:
                    await connection.execute("select pg_sleep_until(max(vt)) from pgmq.q_paused")
                leaving.set()

            async def take() -> list[Message]:
                nonlocal looks
                looks += 1
                if looks == 2:
                    begun.append(asyncio.create_task(leave()))
                return await client.receive("paused")

            assert await lines.wait("paused", take, 60, leaving.wait(), permit=always) == []
            lines.stop()

    asyncio.run(run())
    # The first, after listening began, when that was in vain, when the first fell due.
    assert looks < count / 10


def test_who_waits_for_long_asks_again_meanwhile(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "HEARD_SECONDS", 0.2)

    async def run() -> list[Message]:
        async with AsyncClient(database) as client:
            await client.queues.create("held")
            await client.send("held", "held")
            [message] = await client.receive("held", lease=NEVER_SECONDS)
            asked, asks = asyncio.Event(), 0
            look_ahead = AsyncInspect.look_ahead

            async def counted(inspect: AsyncInspect, queues: Sequence[str]) -> list[float | None]:
                nonlocal asks
                asks += 1
                if asks == 3:  # before the first look, after listening began, and meanwhile
                    asked.set()
                return await look_ahead(inspect, queues)

            monkeypatch.setattr(AsyncInspect, "look_ahead", counted)
            lines = Waiting(client, first=NEVER_SECONDS, longest=NEVER_SECONDS)
            waits = asyncio.create_task(found(client, lines, "held", asyncio.Event()))
            await asked.wait()
            # Nobody announces a lease.
            await client.extend(message, DUE_SECONDS, shorten=True)
            messages = await waits
            lines.stop()
            await lines.join()
            return messages

    assert [message.attempt for message in asyncio.run(run())] == [2]


def test_all_are_asked_for_together() -> None:
    asked: list[list[str]] = []

    async def run() -> list[Due]:
        begun, answered = asyncio.Event(), asyncio.Event()

        async def ask_all(queues: Sequence[str]) -> list[float | None]:
            asked.append(list(queues))
            begun.set()
            await answered.wait()
            return [float(queue) for queue in queues]

        ahead = Ahead(ask_all)
        wanted = [str(number) for number in range(QUEUES_MAX + 50)]
        first = asyncio.create_task(ahead.of("3600"))
        await begun.wait()
        rest = [asyncio.create_task(ahead.of(queue)) for queue in wanted for _ in range(2)]
        await asyncio.sleep(0)
        answered.set()
        return [await first, *await asyncio.gather(*rest)]

    dues = asyncio.run(run())
    assert [len(queues) for queues in asked] == [1, QUEUES_MAX, 50]
    assert dues[0].within(10_000) > dues[200].within(10_000)
    assert not dues[200].is_over


def test_what_can_not_be_asked_is_not_known() -> None:
    broken: list[object] = []

    async def ask_all(queues: Sequence[str]) -> list[float | None]:
        raise ConnectionFailedError("away")

    async def run() -> list[Due]:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: broken.append(context))
        ahead = Ahead(ask_all)
        dues = [await ahead.of("orders"), await ahead.of("orders")]
        await asyncio.sleep(0)
        gc.collect()
        return dues

    assert [due.within(5) for due in asyncio.run(run())] == [5, 5]
    assert broken == []
