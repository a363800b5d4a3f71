"""Every scope of a token tried against every route."""

from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest
from service.tests.route_table import ROUTES, Route
from service.tests.running import Running, service, token
from tests.cli.program import do

from spanmq.client import Client
from spanmq_service.app import description
from spanmq_service.guard.caller import VERBS, Caller

OPEN = {"/health/live": "says nothing but that the process runs", "/health/ready": "nor this of the queues"}
IDS = [f"{route.method} {route.path}" for route in ROUTES]


@pytest.fixture(scope="module")
def guarded(service_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    do(service_database, "select pgmq.create('mine'), pgmq.create('theirs')")
    with service(service_database, tmp_path_factory.mktemp("guarded"), tokens=True) as started:
        yield started


@pytest.fixture(scope="module")
def asking(guarded: Running) -> Iterator[httpx.Client]:
    """A client without a token."""
    with guarded.client() as client:
        yield client


@pytest.fixture(scope="module")
def holders(guarded: Running, service_database: str) -> Iterator[dict[tuple[str, str], httpx.Client]]:
    """A client with a token for each verb, and for what: the queue `mine`, or all."""
    with ExitStack() as opened:
        yield {
            (verb, queues): opened.enter_context(
                guarded.client(token(service_database, f"{verb} {queues}", queues=queues, verbs=verb))
            )
            for verb in VERBS
            for queues in ("mine", "*")
        }


def ask(client: httpx.Client, route: Route, queue: str, secret: str | None = None) -> int:
    headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
    # A body that no route takes: who may act is told so, and nothing is done.
    body = "[]" if route.method in ("POST", "PUT", "PATCH") else None
    headers |= {} if body is None else {"Content-Type": "application/json"}
    return client.request(route.method, route.at(queue), headers=headers, content=body).status_code


def test_table_of_routes_is_whole() -> None:
    described = {
        (method.upper(), path) for path, methods in description()["paths"].items() for method in methods
    }
    assert {(route.method, route.path) for route in ROUTES} == described


def test_every_route_has_a_scope() -> None:
    assert {route.path for route in ROUTES if route.scope is None} == OPEN.keys()


def test_scope_of_a_path_is_that_of_its_queue() -> None:
    for route in ROUTES:
        if "{queue}" in route.path and route.scope is not None:
            assert route.scope.of in ("path", "everything"), route


@pytest.mark.parametrize("route", ROUTES, ids=IDS)
def test_route_takes_its_own_scope_only(
    route: Route, asking: httpx.Client, holders: dict[tuple[str, str], httpx.Client]
) -> None:
    scope = route.scope
    if scope is None:
        assert ask(asking, route, "mine") == 200
        return
    for secret in (None, "spanmq_unknown", "other"):
        assert ask(asking, route, "mine", secret) == 401
    for (verb, queues), holder in holders.items():
        for queue in ("mine", "missing"):
            is_allowed = verb == scope.verb and (
                queues == "*"
                or scope.of in ("request", "filtered")
                or (scope.of == "path" and queue == "mine")
            )
            # Nothing is dropped or sent on the way to that answer, so only routes that look are let through.
            if is_allowed and route.method == "DELETE":
                continue
            status = ask(holder, route, queue)
            assert (status not in (401, 403)) == is_allowed, (verb, queues, queue, status)


def test_settling_takes_the_scope_of_the_receipts_queue(
    service_database: str, holders: dict[tuple[str, str], httpx.Client]
) -> None:
    do(service_database, "select pgmq.send('theirs', '1')")
    mine, everybody = (holders["receive", queues] for queues in ("mine", "*"))
    [message] = everybody.post("/v1/queues/theirs/receive", json={}).json()["messages"]
    given = {"receipts": [message["receipt"]]}
    for how in ("ack", "nack", "reject", "release"):
        assert mine.post(f"/v1/{how}", json=given).status_code == 403
    for how in ("extend", "close-bucket"):
        assert mine.post(f"/v1/{how}", json=given | {"seconds": 1}).status_code == 403
    assert everybody.post("/v1/ack", json=given).json()["results"][0]["outcome"] == "acked"


def test_lists_show_what_the_token_may_look_at(
    service_database: str, holders: dict[tuple[str, str], httpx.Client]
) -> None:
    with Client(service_database) as client:
        client.send_batch("theirs", [1, 2])
        client.reject(client.receive("theirs"), "no")
        client.admin.pipeline_runs.begin("export", "theirs")
    do(service_database, "select spanmq.report_worker('{theirs}', 'worker-7', 1, 1)")
    do(service_database, "select spanmq.receiver_open('theirs', label => 'lake')")
    shown = set()
    for route in ROUTES:
        if route.scope is not None and route.scope.of == "filtered":
            for queues in ("mine", "*"):
                done = holders["look", queues].get(route.path)
                assert done.status_code == 200
                if "theirs" in done.text:
                    shown.add((route.path, queues))
    assert {queues for _, queues in shown} == {"*"}, shown
    # So there was something to hide.
    lists = {"queues", "metrics", "health", "count", "attention", "workers", "dead-letters", "receivers"}
    assert {path for path, _ in shown} >= {f"/v1/{name}" for name in {*lists, "pipeline-runs"}}


def test_schedule_takes_the_scope_of_its_queue_now_and_then(
    holders: dict[tuple[str, str], httpx.Client],
) -> None:
    mine, everybody = (holders["manage", queues] for queues in ("mine", "*"))

    def put(client: httpx.Client, queue: str) -> httpx.Response:
        return client.put("/v1/schedules/yearly", json={"queue": queue, "cron": "0 0 1 1 *", "body": 1})

    assert put(mine, "theirs").status_code == 403
    assert put(everybody, "theirs").status_code == 200
    taken = put(mine, "mine")
    assert (taken.status_code, "theirs" in taken.text) == (403, False)
    # To it a schedule of a queue that it may not touch is like one that does not exist.
    for act in ("pause", "resume"):
        hidden, none = (mine.post(f"/v1/schedules/{name}/{act}") for name in ("yearly", "none"))
        assert (hidden.status_code, none.status_code) == (404, 404)
        assert hidden.text.replace("yearly", "none") == none.text
    hidden, none = (mine.delete(f"/v1/schedules/{name}") for name in ("yearly", "none"))
    assert hidden.json() == none.json() == {"existed": False}
    assert everybody.delete("/v1/schedules/yearly").json() == {"existed": True}


@pytest.mark.parametrize(
    ("pattern", "queue", "fits"),
    [
        ("*", "any", True),
        ("orders", "orders", True),
        ("Orders", "oRDERS", True),
        ("orders-*", "orders-1", True),
        ("orders-*", "orders", False),
        ("*-dead", "orders-dead", True),
        ("o*s", "orders", True),
        ("o*s", "order", False),
        ("o.ders", "orders", False),
        ("[o]rders", "orders", False),
        ("orders", "orders\n", False),
    ],
)
def test_pattern_fits_whole_names(pattern: str, queue: str, fits: bool) -> None:
    assert Caller("", (pattern,), frozenset(["look"])).may("look", queue) == fits


def test_everything_takes_the_pattern_for_everything() -> None:
    assert not Caller("", ("a*", "*a"), frozenset(["look"])).may("look", None)
