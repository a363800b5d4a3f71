"""The description of the routes: every operation has its answers, and gives them."""

import re
import subprocess
import sys
from dataclasses import fields
from typing import Any

import httpx
from service.tests.described import operation_of
from service.tests.route_table import ROUTES
from service.tests.running import Running
from tests.cli.program import do

from spanmq.client import Client
from spanmq.model import Policy
from spanmq_service.app import description

DESCRIPTION: dict[str, Any] = description()


def test_every_route_is_described_with_its_answer_and_its_errors() -> None:
    schemas = DESCRIPTION["components"]["schemas"]
    for route in ROUTES:
        described = DESCRIPTION["paths"][route.path][route.method.lower()]
        assert described["summary"]
        assert described["description"], route
        answers = described["responses"]
        [success] = [answers[status] for status in answers if status < "300"]
        [(kind, content)] = success["content"].items()
        if kind == "application/json":
            assert schemas[content["schema"]["$ref"].rpartition("/")[2]]["properties"], route
        for status in answers.keys() - {"200", "201"}:
            shape = answers[status]["content"]["application/json"]["schema"]["$ref"]
            assert shape.endswith("/Failed")
        guarded = {"401", "403", "421", "429", "503"}
        assert guarded <= answers.keys() or route.scope is None, route
        assert ({"400", "408", "413"} <= answers.keys()) == ("requestBody" in described), route


def test_description_names_the_token_that_routes_take() -> None:
    [(name, scheme)] = DESCRIPTION["components"]["securitySchemes"].items()
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    for route in ROUTES:
        described = DESCRIPTION["paths"][route.path][route.method.lower()]
        assert described.get("security") == (None if route.scope is None else [{name: []}]), route


def test_body_of_which_everything_has_a_default_may_be_missing() -> None:
    schemas = DESCRIPTION["components"]["schemas"]
    optional = set()
    for route in ROUTES:
        body = DESCRIPTION["paths"][route.path][route.method.lower()].get("requestBody")
        if body is not None:
            schema = body["content"]["application/json"]["schema"]
            name = str(schema.get("$ref") or schema.get("anyOf", [{}])[0].get("$ref")).rpartition("/")[2]
            if name in schemas and not schemas[name].get("required"):
                optional.add(name)
                assert not body.get("required"), route
    assert {"Wanted", "Popped", "Discard"} <= optional


def test_change_of_a_policy_is_described_by_its_settings() -> None:
    body = DESCRIPTION["paths"]["/v1/queues/{queue}/policy"]["patch"]["requestBody"]
    schema = body["content"]["application/json"]["schema"]
    assert schema["properties"].keys() == {each.name for each in fields(Policy)}
    assert all(each["description"] for each in schema["properties"].values())
    kinds = {name: each["anyOf"] for name, each in schema["properties"].items()}
    assert kinds["max_attempts"] == [{"type": "integer"}, {"type": "null"}]
    assert kinds["keep"] == [{"type": "string"}, {"type": "null"}]
    assert schema["additionalProperties"] is False


def test_names_of_operations_are_unique() -> None:
    names = [route.name for route in ROUTES]
    assert [name for name in names if names.count(name) > 1] == []


def test_page_of_the_description_needs_no_token_and_says_no_secret(shared: Running) -> None:
    with shared.client() as client:
        page = client.get("/docs")
        assert page.status_code == 200
        policy = page.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self' 'sha256-")
        assert "unsafe" not in policy
        for file in re.findall(r'(?:src|href)="([^"]+)"', page.text):
            assert client.get(f"/{file}").status_code == 200, file
        assert client.get("/openapi.json").json()["info"]["title"] == "spanmq"


def test_every_operation_succeeds_with_the_answer_that_is_described(running: Running, orders: str) -> None:
    """The client compares each answer with the description; lists must have something to compare."""
    done: set[str] = set()

    def ask(method: str, path: str, given: object = None) -> Any:
        path = path.replace("~", "/v1/queues/orders")
        answer: httpx.Response = http.request(method, path, json=given)
        assert answer.is_success, (method, path, answer.text)
        operation = operation_of(answer)
        assert operation is not None, (method, path)
        done.add(operation.label)
        if path == "/metrics":
            return None
        members = answer.json()
        assert [] not in members.values() or path == "/v1/maintain", (method, path)
        return members

    with running.client() as http, Client(orders, pool_size=1) as client:
        for path in ("/health/live", "/health/ready", "/metrics", "/v1/version", "/v1/doctor"):
            ask("GET", path)
        ask("PUT", "/v1/queues/other")
        ask("PATCH", "~/policy", {"archive_on_ack": True, "archive_retention": "30 days"})
        ask("GET", "~/policy")
        ask("PUT", "~/schema?checked=true", {"type": ["object", "integer"]})
        ask("GET", "~/schema")
        ask("DELETE", "~/schema")
        ask("POST", "~/messages", {"body": {"number": 1}, "headers": {"a": 1}, "group": "g"})
        ask("POST", "~/messages/batch", {"messages": [{"body": number} for number in range(20)]})
        ask("GET", "~/messages")
        newest = ask("GET", "~/messages?newest_first=true&after=4&quantity=2")
        assert [each["message_id"] for each in newest["messages"]] == [3, 2]
        ask("GET", "~/groups")
        [first, *messages] = ask("POST", "~/receive", {"quantity": 10})["messages"]
        ask("POST", "~/receive")
        ask("GET", "~/leases")
        client.nack(client.receive("orders")[0], "time-out", error_class="TimeoutError", worker="w")
        settle: dict[str, dict[str, object]] = {
            "ack": {},
            "nack": {"error": "time-out", "retry_in": 3600},
            "reject": {"error": "bad", "error_class": "E", "traceback": "t", "worker": "w"},
            "release": {},
            "extend": {"seconds": 60, "shorten": True},
            "close-bucket": {"seconds": 60},
        }
        held = [first, *messages]
        for message, (how, more) in zip(held, settle.items(), strict=False):
            ask("POST", f"/v1/{how}", {"receipts": [message["receipt"]], **more})
        ask("POST", "/v1/nack", {"receipts": [held[5]["receipt"]], "requeue": False, "category": "BUSINESS"})
        ask("POST", "/v1/reject", {"receipts": [held[6]["receipt"]]})
        ask("GET", "~/archive")
        ask("GET", f"~/messages/{held[1]['message_id']}/state")
        ask("GET", f"~/messages/{held[1]['message_id']}/explain")
        ask("GET", f"~/messages/{held[1]['message_id']}/failures")
        ask("GET", "/v1/attention")
        ask("GET", "/v1/failing")
        ask("GET", "~/failing")
        ask("GET", "~/changes")
        ask("POST", "~/failing/search", {"after": 0, "newest_first": True})
        ask("POST", "~/failing/retry", {"task": "none"})
        ask("POST", "~/failing/reject", {"message_ids": [10**9]})
        dead = held[2]["message_id"], held[5]["message_id"], held[6]["message_id"]
        ask("GET", "/v1/dead-letters")
        ask("GET", "~/dead-letters")
        ask("GET", f"~/messages/{dead[0]}/dead-letters")
        ask("POST", "~/dead-letters/search")
        ask("POST", f"~/dead-letters/{dead[0]}/redrive", {"body": "repaired"})
        patch = [{"op": "replace", "path": "", "value": 1}]
        ask("POST", "~/dead-letters/redrive", {"category": "BUSINESS", "patch": patch, "dry_run": True})
        ask("POST", "~/dead-letters/redrive", {"category": "BUSINESS"})
        ask("POST", "~/dead-letters/search", {"redriven": True})
        ask("POST", "~/dead-letters/purge")
        ask("POST", "~/pop")
        for how in ("cancel", "delete", "archive"):
            ask("POST", f"~/{how}", {"message_ids": [20]})
        ask("POST", "/v1/classify", {"error": "time-out"})
        ask("POST", "~/classify", {"error": "time-out"})
        for where in ("/v1", "~"):
            ask("PUT", f"{where}/category-rules/rule", {"category": "BUSINESS", "error": "no"})
            ask("GET", f"{where}/category-rules")
            ask("DELETE", f"{where}/category-rules/rule")
            ask("PUT", f"{where}/category-policies/BUSINESS", {"settings": {"max_attempts": 3}})
            ask("GET", f"{where}/category-policies")
        for each in ({"cron": "0 0 1 1 *"}, {"cron": "0 0 1 2 *", "headers": {"a": 1}, "catch_up": True}):
            ask("PUT", "/v1/schedules/yearly", {"queue": "orders", "body": 1, **each})
        ask("GET", "/v1/schedules")
        for how in ("pause", "resume"):
            ask("POST", f"/v1/schedules/yearly/{how}")
            ask("POST", f"~/{how}")
        ask("POST", "~/close-breaker")
        ask("POST", "~/signals", {"name": "approved:42", "body": {"by": "ann"}})
        assert ask("GET", "~/signals?quantity=1")["signals"][0]["body"] == {"by": "ann"}
        do(orders, "select spanmq.report_worker('{orders}', 'worker-7', 1, 1)")
        ask("GET", "/v1/workers")
        ask("POST", "/v1/workers/stop", {"worker": "worker-7"})
        ask("DELETE", "/v1/schedules/yearly")
        ask("PUT", "~/bindings/order.*")
        ask("GET", "/v1/bindings")
        ask("GET", "~/bindings")
        ask("GET", "/v1/topics/order.new/routing")
        ask("POST", "/v1/topics/order.new/messages", {"body": 1})
        ask("POST", "/v1/topics/order.new/messages/batch", {"messages": [{"body": 1}]})
        ask("DELETE", "~/bindings/order.*")
        ask("PUT", "~/subscriptions/copies", {"waiting": True})
        ask("GET", "/v1/subscriptions")
        ask("GET", "~/subscriptions")
        client.admin.pipeline_runs.begin("export", "orders", target="lake")
        ask("GET", "/v1/pipeline-runs")
        ask("GET", "~/pipeline-runs")
        do(orders, "select spanmq.receiver_open('orders', label => 'lake')")
        ask("GET", "/v1/receivers")
        ask("GET", "~/receivers")
        ask("POST", "~/receivers/lake/adopt")
        ask("POST", "~/receivers/lake/release")
        ask("POST", "~/forget-export?lake=lake")
        do(
            orders,
            "insert into spanmq_core.statistics select queue_id, clock_timestamp() - interval '2 minutes', "
            "60, 3, 6, 12, 18, 24, 2, 1, 1, 7.5 from spanmq_core.queue where name = 'orders'",
        )
        for path in ("statistics", "metrics"):
            ask("GET", f"/v1/{path}")
            ask("GET", f"~/{path}")
        for path in ("/v1/queues", "/v1/count", "/v1/health", "~/storage", "~/segments"):
            ask("GET", path)
        ask("POST", "/v1/maintain")
        ask("POST", "/v1/queues/other/purge")
        ask("DELETE", "/v1/queues/other")
    left = {f"{route.method} {route.path}" for route in ROUTES} - done
    assert left == set(), "call each route above"


AT_ONCE = """
import sys
from concurrent.futures import ThreadPoolExecutor
from spanmq_service.app import TABLES
from spanmq_service.routes.description import describe

sys.setswitchinterval(1e-6)
operations = [operation for table in TABLES for operation in table.operations]
with ThreadPoolExecutor(8) as threads:
    one, *others = threads.map(describe, [operations] * 8)
assert one["paths"] and all(other == one for other in others)
"""


def test_threads_may_describe_at_the_same_time() -> None:
    # In a process that has described nothing before.
    subprocess.run([sys.executable, "-c", AT_ONCE], check=True)
