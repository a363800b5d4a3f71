"""One method, three doors: a value that the client refuses has the same error by a command and over HTTP."""

import json
from typing import Any

import httpx
import pytest
from tests.cli.program import spanmq

from spanmq.client import Client
from spanmq.client.door import bound
from spanmq.errors import SpanmqError

# The method and its arguments, the command, and the request.
REFUSED = [
    (("Inspect.leases", "nope"), "queue leases nope", ("GET", "/v1/queues/nope/leases", None)),
    (("Queues.policy", "nope"), "policy get nope", ("GET", "/v1/queues/nope/policy", None)),
    (
        ("Receivers.adopt", "~", "nope"),
        "receiver adopt ~ nope",
        ("POST", "/v1/queues/~/receivers/nope/adopt", None),
    ),
    (
        ("Admin.stop_worker", "nope"),
        "queue stop-worker nope",
        ("POST", "/v1/workers/stop", {"worker": "nope"}),
    ),
    (("Topics.bind", "a..b", "~"), "topic bind a..b ~", ("PUT", "/v1/queues/~/bindings/a..b", None)),
    (
        ("Signals.send", "~", "n" * 256),
        f"signal send ~ {'n' * 256}",
        ("POST", "/v1/queues/~/signals", {"name": "n" * 256}),
    ),
    (
        ("Health.statistics", "~", {"seconds": 0.0}),
        "queue statistics ~ --seconds 0",
        ("GET", "/v1/queues/~/statistics?seconds=0", None),
    ),
]


@pytest.mark.parametrize(("call", "words", "request_"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_the_client_refuses_has_one_code_at_each_door(
    http: httpx.Client,
    service_database: str,
    queue: str,
    call: tuple[Any, ...],
    words: str,
    request_: tuple[str, str, Any],
) -> None:
    name, *given = call
    arguments = [each.replace("~", queue) for each in given if isinstance(each, str)]
    named = {key: value for each in given if isinstance(each, dict) for key, value in each.items()}
    with Client(service_database) as client, pytest.raises(SpanmqError) as refused:
        bound(client, name)(*arguments, **named)
    by_command = spanmq(*words.replace("~", queue).split(), "--json", dsn=service_database)
    method, path, body = request_
    over_http = http.request(method, path.replace("~", queue), json=body)
    assert by_command.code == 1
    codes = {json.loads(by_command.err)["error"]["code"], over_http.json()["error"]["code"]}
    assert codes == {refused.value.code}


# Of each type a value that it is not: a command's usage error, and 422 with the place in the request.
WRONG = [
    ("queue leases ~ --limit many", "/v1/queues/~/leases?limit=many", "query.limit"),
    ("queue changes ~ --before x", "/v1/queues/~/changes?before=x", "query.before"),
    ("queue statistics ~ --seconds soon", "/v1/queues/~/statistics?seconds=soon", "query.seconds"),
    ("why ~ x", "/v1/queues/~/messages/x/explain", "path.message_id"),
    ("message peek-archive ~ --newest-first=x", "/v1/queues/~/archive?newest_first=x", "query.newest_first"),
]


@pytest.mark.parametrize(("words", "path", "place"), WRONG)
def test_value_of_another_type_is_refused_before_the_call(
    http: httpx.Client, service_database: str, queue: str, words: str, path: str, place: str
) -> None:
    by_command = spanmq(*words.replace("~", queue).split(), "--json", dsn=service_database)
    assert (by_command.code, json.loads(by_command.err)["error"]["code"]) == (2, "usage")
    over_http = http.get(path.replace("~", queue))
    error = over_http.json()["error"]
    assert (over_http.status_code, error["code"]) == (422, "invalid_argument")
    assert error["detail"].startswith(f"{place}:")
