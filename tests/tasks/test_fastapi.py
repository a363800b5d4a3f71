"""Tasks in FastAPI: a worker as long as the application, sends in the transaction of a request."""

import asyncio
from collections.abc import Iterator
from typing import Annotated, Any

import httpx
from fastapi import Depends, FastAPI, HTTPException
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import Session

from spanmq import Client
from spanmq.tasks import Tasks


async def test_application_sends_and_works(
    client: Client, own: Tasks, engines: tuple[Engine, AsyncEngine]
) -> None:
    shipped, arrived = [], asyncio.Event()

    @own.task
    async def ship(number: int) -> None:
        shipped.append(number)
        arrived.set()

    def session_of_request() -> Iterator[Session]:
        with Session(engines[0]) as session, session.begin():
            yield session

    app = FastAPI(lifespan=own.lifespan)

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
