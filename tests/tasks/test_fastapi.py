"""Tasks in FastAPI: a worker as long as the application, sends in the transaction of a request."""

import asyncio
from collections.abc import Iterator
from typing import Annotated, Any

import httpx
import psycopg
from fastapi import Depends, FastAPI, HTTPException
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from spanmq import Client
from spanmq.tasks import Tasks


async def test_application_sends_and_works(client: Client, database: str) -> None:
    tasks = Tasks("orders", dsn=database)
    shipped, arrived = [], asyncio.Event()
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(database))

    @tasks.task
    async def ship(number: int) -> None:
        shipped.append(number)
        arrived.set()

    def session_of_request() -> Iterator[Session]:
        with Session(engine) as session, session.begin():
            yield session

    app = FastAPI(lifespan=tasks.lifespan)

    @app.post("/orders/{number}")
    def place(number: int, session: Annotated[Session, Depends(session_of_request)]) -> dict[str, Any]:
        sent = ship.using(session=session).send(number)
        if number < 0:
            raise HTTPException(422, "a number below 0")
        return {"message": sent.message_id}

    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://shop") as browser,
    ):
        assert (await browser.post("/orders/-1")).status_code == 422
        assert (await browser.post("/orders/17")).status_code == 200
        await arrived.wait()
    assert shipped == [17]
    assert client.queues.metrics("orders").length == 0
    engine.dispose()
    tasks.close()
