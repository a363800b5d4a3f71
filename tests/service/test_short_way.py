"""The short way leads to the same routes as FastAPI's, and to no other."""

import pytest
from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.routing import Match
from tests.service.route_table import APP
from tests.service.running import Running

from spanmq.service.app import ROUTERS
from spanmq.service.json_text import reply
from spanmq.service.parts import MayLook, QueueName
from spanmq.service.short_way import ShortWay
from spanmq.service.straight import Straight

[SHORT] = [route for route in APP.router.routes if isinstance(route, ShortWay)]
STRAIGHT = [
    route
    for router in ROUTERS
    for route in router.routes
    if isinstance(route, APIRoute) and isinstance(route, Straight)
]


def found(path: str, method: str = "POST") -> tuple[Match, object, object]:
    match, scope = SHORT.matches({"type": "http", "method": method, "path": path})
    return match, scope.get("route"), scope.get("path_params")


def test_short_way_is_the_first() -> None:
    assert APP.router.routes[0] is SHORT


@pytest.mark.parametrize("route", STRAIGHT, ids=lambda route: route.path)
def test_every_straight_route_is_found(route: Straight) -> None:
    params = {"queue": "a b"} if "{queue}" in route.path else {}
    assert found(route.path.format(queue="a b")) == (Match.FULL, route, params)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/queues//messages",
        "/v1/queues/a/b/messages",
        "/v1/queues/a/messages/",
        "/v1/queues/a",
        "/v1/queues",
        "/v1/ack/",
        "/v1/ack/a",
        "/v2/ack",
        "/",
        "",
    ],
)
def test_other_paths_are_not(path: str) -> None:
    assert found(path)[0] is Match.NONE


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "OPTIONS"])
def test_other_methods_go_the_long_way(shared: Running, method: str) -> None:
    assert found("/v1/ack", method)[0] is Match.NONE
    with shared.client() as http:
        assert http.request(method, "/v1/ack").status_code == 405


def test_requests_are_counted_under_the_route_s_path(shared: Running, queue: str) -> None:
    with shared.client() as http:
        assert http.post(f"/v1/queues/{queue}/messages", json={"body": 1}).status_code == 201
        assert 'route="/v1/queues/{queue}/messages",status="201"' in http.get("/metrics").text


def test_route_to_which_no_short_way_leads_is_refused() -> None:
    async def look(queue: QueueName, caller: MayLook) -> Response:
        return reply(queue=queue, name=caller.name)

    for method, path in (
        ("GET", "/v1/queues/{queue}/x"),
        ("POST", "/v1/{queue}/x"),
        ("POST", "/v1/x/{queue}"),
    ):
        routes = APIRouter(route_class=Straight)
        routes.add_api_route(path, look, methods=[method])
        with pytest.raises(TypeError, match="no short way"):
            ShortWay(routes.routes)
