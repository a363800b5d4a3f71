"""Routes that are called directly answer what FastAPI's own way would answer."""

import asyncio
from typing import Annotated, Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI, Header, Query, Request
from pydantic import Field
from starlette.responses import Response

from spanmq.service.access import Guarded
from spanmq.service.backend import Backend
from spanmq.service.failure import handle
from spanmq.service.json_text import reply
from spanmq.service.parts import Behind, Given, MaySend, QueueName, Seconds
from spanmq.service.settings import Settings
from spanmq.service.straight import Straight

JSON = "application/json"


class Part(Given):
    body: Any
    delay: Seconds | None = None


class Batch(Given):
    parts: Annotated[list[Part], Field(min_length=1, max_length=2)]
    ordered: bool = False


Key = Annotated[str | None, Header(min_length=1, max_length=5)]


async def echo(
    queue: QueueName, batch: Batch, request: Request, backend: Behind, caller: MaySend, some_key: Key = None
) -> Response:
    assert backend.settings.host == "127.0.0.1"
    assert caller.may("send", queue)
    assert request.url.path.endswith(queue)
    return reply(queue=queue, batch=batch.model_dump(), key=some_key)


async def echo_some(queue: QueueName, caller: MaySend, part: Part | None = None) -> Response:
    return reply(queue=queue, part=part and part.model_dump())


@pytest.fixture(scope="module")
def app() -> FastAPI:
    made = FastAPI()
    made.state.backend = Backend(Settings(dsn="postgresql:///none", with_tokens=False))
    handle(made)
    for prefix, kind in (("/straight", Straight), ("/own", Guarded)):
        routes = APIRouter(prefix=prefix, route_class=kind)
        routes.post("/{queue}")(echo)
        routes.post("/{queue}/some")(echo_some)
        made.include_router(routes)
    return made


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        ('{"parts": [{"body": {"a": [1.5, null, "\\u00fc"]}, "delay": 3}], "ordered": true}', {}, 200),
        ('{"parts": [{"body": 1}]}', {"some-key": "k"}, 200),
        ('{"parts": [{"body": 1}]}', {"content-type": "application/JSON; charset=utf-8"}, 200),
        ('{"parts": [{"body": 1}]}', {"content-type": "application/problem+json"}, 200),
        ('{"parts": [{"body": 1}]}', {"content-type": "text/plain"}, 422),
        ('{"parts": [{"body": 1}]}', {"content-type": "text/x+json"}, 422),
        ('{"parts": [{"body": 1}]}', {"content-type": ""}, 422),
        ('{"parts": [{"body": 1}]}', {"some-key": "too long"}, 422),
        ('{"parts": [{"body": 1}]}', {"some-key": ""}, 422),
        ('{"parts": [{"body": 1}, {"delay": -1, "what": 2}], "ordered": "maybe"}', {"some-key": ""}, 422),
        ('{"parts": []}', {}, 422),
        ("[]", {}, 422),
        ("null", {}, 422),
        ("", {}, 422),
        ("{", {}, 400),
        ('{"parts": [{"body": 1}]} x', {}, 400),
        ('{"parts": [{"body": 1, "delay": true}]}', {}, 422),
        (b'{"parts": "\xff"}', {}, 400),
        ("[" * 100_000, {}, 400),
        (b'{"parts": [{"body": ' + b"9" * 5_000 + b"}]}", {}, 400),
    ],
)
def test_answers_are_those_of_fastapi(
    app: FastAPI, body: str | bytes, headers: dict[str, str], status: int
) -> None:
    check_alike(app, "orders", body, headers, status)


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        ("", {}, 200),
        ("", {"content-type": "text/plain"}, 200),
        ("null", {}, 200),
        ('{"body": 1}', {}, 200),
        ('{"body": 1}', {"content-type": "text/plain"}, 422),
        ("{}", {}, 422),
        ("[]", {}, 422),
        ("{", {}, 400),
    ],
)
def test_answers_to_a_body_that_may_be_missing_are_those_of_fastapi(
    app: FastAPI, body: str, headers: dict[str, str], status: int
) -> None:
    check_alike(app, "orders/some", body, headers, status)


def answers(app: FastAPI, path: str, **request: Any) -> list[httpx.Response]:
    """Ask our own way, and FastAPI's."""

    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return [await client.post(f"{way}/{path}", **request) for way in ("/straight", "/own")]

    return asyncio.run(ask())


def check_alike(app: FastAPI, path: str, body: str | bytes, headers: dict[str, str], status: int) -> None:
    straight, own = answers(app, path, content=body, headers={"content-type": JSON, **headers})
    assert straight.status_code == status, straight.text
    assert (straight.status_code, straight.json()) == (own.status_code, own.json())


def test_name_that_is_too_long_is_told_beside_the_body(app: FastAPI) -> None:
    straight, own = answers(app, "x" * 60, json={"parts": []})
    assert "path.queue" in straight.text
    assert "body.parts" in straight.text
    assert straight.text == own.text


def test_route_that_asks_for_more_is_refused_when_it_is_made() -> None:
    async def searched(queue: QueueName, caller: MaySend, what: Annotated[str, Query()]) -> Response:
        return reply(queue=queue, what=what, name=caller.name)

    async def anybody(queue: QueueName) -> Response:
        return reply(queue=queue)

    routes = APIRouter(route_class=Straight)
    with pytest.raises(TypeError, match="the parameter what"):
        routes.post("/{queue}")(searched)
    with pytest.raises(TypeError, match="no parameter for the caller"):
        routes.post("/{queue}")(anybody)
