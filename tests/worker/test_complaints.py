"""What a worker's tasks end with is told as its events or errors: nothing is left for asyncio to complain about."""

import asyncio
import gc
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from tests.patience import WAIT_SECONDS

from spanmq import AsyncClient, Message
from spanmq.worker import Worker
from spanmq.worker.event import Event, MessageSettled

END = (
    "select pg_terminate_backend(pid) from pg_stat_activity"
    " where datname = current_database() and application_name = 'spanmq worker'"
)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_cancels_lost_sessions_and_the_end_of_its_task_leave_no_error_that_is_never_retrieved(
    database: str,
) -> None:
    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    events: asyncio.Queue[Event] = asyncio.Queue()
    begun: asyncio.Queue[int] = asyncio.Queue()

    async def handle(message: Message) -> None:
        begun.put_nowait(message.message_id)
        try:
            await asyncio.Event().wait()
        finally:
            if message.body == "breaks":
                raise ValueError("the end of a handler fails")

    async def until(kind: type[Event]) -> None:
        while not isinstance(await events.get(), kind):
            pass

    async with asyncio.timeout(WAIT_SECONDS), AsyncClient(database) as client:
        await client.queues.create("orders")
        for _ in range(3):
            worker = Worker(
                "orders", handle, dsn=database, concurrency=4, grace=0, observers=[events.put_nowait]
            )
            work = asyncio.create_task(worker.work(signals=False))
            for body in ("cancelled", "breaks"):
                sent = await client.send("orders", body)
                await begun.get()
                await client.cancel("orders", sent)
                await until(MessageSettled)
            await client.send_batch("orders", ["runs", "breaks"])
            await begun.get()
            await begun.get()
            async with await psycopg.AsyncConnection.connect(database, autocommit=True) as operator:
                await operator.execute(END)
            await client.send("orders", "after the loss")
            await begun.get()
            work.cancel()
            with suppress(asyncio.CancelledError):
                await work
            await client.queues.purge("orders")
            del work, worker
    await asyncio.sleep(0)
    gc.collect()
    assert complaints == []
