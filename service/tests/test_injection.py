"""Hostile texts in every text that a route or an action of SQS takes, as their descriptions name them."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode
from xml.etree import ElementTree

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from service.tests.hostile import HOSTILE, MARKUP, check_canary, place_canary
from service.tests.running import Running, service
from tests.cli.program import do

from spanmq_service.app import description
from spanmq_service.sqs import protocol

QUEUE = "injected"
DESCRIPTION: dict[str, Any] = description()
XML = "{http://queue.amazonaws.com/doc/2012-11-05/}"
Place = tuple[str | int, ...]


@dataclass(frozen=True)
class Operation:
    """A route as it is described, and where a request of it has texts: `path`, `query`, `header`, `body`."""

    method: str
    path: str
    described: dict[str, Any]

    @property
    def parameters(self) -> list[dict[str, Any]]:
        return list(self.described.get("parameters", []))

    @property
    def body(self) -> dict[str, Any] | None:
        content = self.described.get("requestBody", {}).get("content", {})
        schema: dict[str, Any] | None = content.get("application/json", {}).get("schema")
        return schema

    def places(self) -> Iterator[tuple[str, Place]]:
        for each in self.parameters:
            if any(True for _ in texts_in(each["schema"])):
                yield each["in"], (each["name"],)
        if self.body is not None:
            for place in texts_in(self.body):
                yield "body", place


def plain(schema: dict[str, Any]) -> dict[str, Any]:
    """Follow references, and of several kinds take the first that is not null."""
    while True:
        if reference := schema.get("$ref"):
            schema = DESCRIPTION["components"]["schemas"][reference.rpartition("/")[2]]
        elif "anyOf" in schema:
            schema = next(each for each in schema["anyOf"] if each.get("type") != "null")
        else:
            return schema


def texts_in(schema: dict[str, Any]) -> Iterator[Place]:
    """Name the places of a value that hold any text; of what may be anything, too."""
    for each in schema.get("anyOf", [schema]):
        found = plain(each)
        kind = found.get("type")
        if kind == "string" and "enum" not in found and "format" not in found:
            yield ()
        elif kind == "array":
            yield from ((0, *place) for place in texts_in(found["items"]))
        elif kind == "object":
            for name, inner in found.get("properties", {}).items():
                yield from ((name, *place) for place in texts_in(inner))
            if more := found.get("additionalProperties", "properties" not in found):
                yield ("*",)
                yield from (("a", *place) for place in (texts_in(more) if isinstance(more, dict) else ()))
        elif kind is None:
            yield ()


def example(schema: dict[str, Any]) -> Any:
    """Return the least that the description allows."""
    found = plain(schema)
    if "x-example" in found:
        return found["x-example"]
    match found.get("type"):
        case "string":
            return found.get("enum", ["2030-01-01T00:00:00Z" if "format" in found else "x"])[0]
        case "integer" | "number":
            return found.get("default", found.get("minimum", 1))
        case "boolean":
            return False
        case "array":
            return [example(found["items"])] if found.get("minItems") else []
        case "object":
            return {name: example(found["properties"][name]) for name in found.get("required", [])}
    return 1


def put(value: Any, schema: dict[str, Any], place: Place, text: str) -> Any:
    """Return the value with the text at a place, for which room is made where there is none."""
    if not place:
        return text
    found = plain(schema)
    first, rest = place[0], place[1:]
    more = found.get("additionalProperties")
    if first == "*":
        return {text: example(more)} if isinstance(more, dict) else {**(value or {}), text: text}
    if isinstance(first, int):
        inner = found["items"]
        return [put(value[0] if value else example(inner), inner, rest, text)]
    inner = found.get("properties", {}).get(first, more)
    return {**value, first: put(value.get(first, example(inner)), inner, rest, text)}


OPERATIONS = [
    Operation(method.upper(), path, described)
    for path, methods in DESCRIPTION["paths"].items()
    for method, described in methods.items()
]


def request(http: httpx.Client, each: Operation, where: str, place: Place, text: str) -> httpx.Response:
    """Ask with the text there, and in all other places what is allowed."""
    given: dict[str, dict[str, Any]] = {"path": {}, "query": {}, "header": {}}
    for parameter in each.parameters:
        if parameter.get("required"):
            is_queue = parameter["name"] == "queue"
            given[parameter["in"]][parameter["name"]] = QUEUE if is_queue else example(parameter["schema"])
    body = None if each.body is None else example(each.body)
    if where == "body":
        body = put(body, each.body or {}, place, text)
    else:
        # A header has no lines.
        given[where][str(place[0])] = text.replace("\r\n", " ") if where == "header" else text
    path = each.path.format(**{name: quote(str(value), safe="") for name, value in given["path"].items()})
    return http.request(each.method, path, params=given["query"], headers=given["header"], json=body)


@pytest.fixture(scope="module")
def place(
    service_database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Running, httpx.Client]]:
    """A service that says everything in its log, and a canary in its database."""
    place_canary(service_database)
    do(service_database, f"select pgmq.create('{QUEUE}')")
    options = ("--log-level", "debug", "--wait-max", 0.01)
    with (
        service(service_database, tmp_path_factory.mktemp("injection"), *options) as running,
        running.client() as http,
    ):
        yield running, http


def test_descriptions_have_texts_everywhere() -> None:
    found = [(each.path, where, place) for each in OPERATIONS for where, place in each.places()]
    assert {where for _, where, _ in found} == {"path", "query", "header", "body"}
    for known in (
        ("/v1/queues/{queue}/messages", "header", ("idempotency-key",)),
        ("/v1/queues/{queue}/messages/batch", "body", ("messages", 0, "headers", "*")),
        ("/v1/queues/{queue}/dead-letters/search", "body", ("error",)),
        ("/v1/ack", "body", ("receipts", 0)),
    ):
        assert known in found


def test_no_text_of_a_route_becomes_anything_else(
    place: tuple[Running, httpx.Client], service_database: str
) -> None:
    running, http = place
    for each in OPERATIONS:
        for where, position in each.places():
            for text in HOSTILE:
                done = request(http, each, where, position, text)
                assert done.status_code < 500, (each.method, each.path, where, position, done.text)
                assert done.headers["content-type"].partition(";")[0] in ("application/json", "text/plain")
                assert done.headers["x-content-type-options"] == "nosniff"
    check_canary(service_database, running.log)
    assert list(text_string_to_metric_families(http.get("/metrics").text))


def schema_of(each: Any, name: str = "") -> dict[str, Any]:
    """Return a shape of SQS as the descriptions of routes have theirs."""
    match each.type_name:
        case "structure":
            members = {name: schema_of(member, name) for name, member in each.members.items()}
            schema = {"type": "object", "properties": members, "required": each.required_members}
            is_value = each.name == "MessageAttributeValue"
            return schema | ({"x-example": {"DataType": "String", "StringValue": "x"}} if is_value else {})
        case "list":
            return {"type": "array", "items": schema_of(each.member), "minItems": 1}
        case "map":
            value = schema_of(each.value)
            return {"type": "object", "additionalProperties": value, "x-example": {"a": example(value)}}
        case "string" if name == "QueueUrl":
            return {"type": "string", "x-example": f"/000000000000/{QUEUE}"}
        case "string" if name.endswith("Arn"):
            return {"type": "string", "x-example": f"arn:aws:sqs:x:000000000000:{QUEUE}"}
    return {"type": each.type_name}


def test_no_text_of_an_action_becomes_anything_else(
    place: tuple[Running, httpx.Client], service_database: str
) -> None:
    running, http = place
    for action in protocol.actions():
        described = schema_of(protocol.model().operation_model(action).input_shape)
        target = {"X-Amz-Target": f"AmazonSQS.{action}", "Content-Type": "application/x-amz-json-1.0"}
        for position in texts_in(described):
            for text in HOSTILE:
                values = put(example(described), described, position, text)
                done = http.post("/", content=json.dumps(values), headers=target)
                assert done.status_code < 500, (action, position, done.text)
                assert done.headers["content-type"] == "application/x-amz-json-1.0"
                if all(isinstance(each, str | int) for each in values.values()):
                    form = urlencode({"Action": action, **values})
                    kind = {"Content-Type": "application/x-www-form-urlencoded"}
                    done = http.post("/", content=form, headers=kind)
                    assert done.status_code < 500, (action, position, done.text)
                    assert ElementTree.fromstring(done.text).tag
                    assert MARKUP not in done.text
    check_canary(service_database, running.log)
    # What was sent in the one protocol comes as it was in the other.
    values = {"QueueUrl": f"/000000000000/{QUEUE}", "MaxNumberOfMessages": 10}
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    found: set[str | None] = set()
    while len(found) < len(HOSTILE):
        done = http.post("/", content=urlencode({"Action": "ReceiveMessage", **values}), headers=kind)
        assert MARKUP not in done.text
        bodies = [each.text for each in ElementTree.fromstring(done.text).iter(f"{XML}Body")]
        assert bodies, "they are all here, or hidden"
        found |= set(bodies) & set(HOSTILE)
