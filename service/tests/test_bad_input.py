"""Requests whose values are wrong: the answer says where the value is and what it must be, in the words of JSON."""

import httpx
import pytest

MESSAGES = "POST /v1/queues/orders/messages"
LIST = "GET /v1/queues/orders/messages"
TOO_MANY = '{"messages": [' + ", ".join(['{"body": 1}'] * 1_001) + "]}"
SEARCH = "POST /v1/queues/orders/dead-letters/search"
REDRIVE = "POST /v1/queues/orders/dead-letters/redrive"
RECEIVE = "POST /v1/queues/orders/receive"
NO_TIME = "body.delay: a time must be a string in ISO 8601, with a time zone"
NO_DELAY = "expected a number or a string or null, got true or false"
ODD_HEADERS = '{"messages": [{"body": 1}, {"body": 1, "headers": {"a": 1e400}}]}'
NO_DOUBLE = "outside of a body a number is a double, which 1e400 can't be"
LONG = NO_DOUBLE.replace("1e400", "12345678901234567.89")
# A request, its body, and what the answer says.
REFUSED = [
    (MESSAGES, "", "body: missing"),
    (MESSAGES, "null", "body: expected an object, got null"),
    (MESSAGES, "{}", "body: missing the required member `body`"),
    (MESSAGES, "[]", "body: expected an object, got a list"),
    (MESSAGES, '{"body": 1, "dealy": 1}', "body: contains the unknown member `dealy`"),
    (MESSAGES, '{"body": 1, "group": 7}', "body.group: expected a string or null, got an integer"),
    (MESSAGES, '{"body": 1, "priority": 10}', "body.priority: expected an integer <= 9"),
    (MESSAGES, '{"body": 1, "priority": "1"}', "body.priority: expected an integer, got a string"),
    (MESSAGES, '{"body": 1, "priority": false}', "body.priority: expected an integer, got true or false"),
    (MESSAGES, '{"body": 1, "delay": true}', f"body.delay: {NO_DELAY}"),
    (MESSAGES, '{"body": 1, "delay": "3"}', NO_TIME),
    (MESSAGES, '{"body": 1, "delay": "2030-01-01T00:00:00"}', NO_TIME),
    (MESSAGES, '{"body": 1, "delay": "yesterday"}', NO_TIME),
    (MESSAGES, '{"body": 1, "delay": -1}', "body.delay: expected a number >= 0"),
    (MESSAGES, '{"body": 1, "delay": 1e300}', "body.delay: expected a number <= 3000000000"),
    (MESSAGES, f'{{"body": 1, "delay": {"9" * 5_000}}}', "body.delay: number out of range"),
    (MESSAGES, '{"body": 1, "max_attempts": 0}', "body.max_attempts: expected an integer >= 1"),
    (MESSAGES, '{"body": 1, "expires_in": "x"}', "body.expires_in: expected a number or null, got a string"),
    (MESSAGES, '{"body": 1, "headers": {"a": 1e400}}', f"body.headers[...]: {NO_DOUBLE}"),
    (MESSAGES, '{"body": 1, "headers": {"a": 12345678901234567.89}}', f"body.headers[...]: {LONG}"),
    (
        f"{MESSAGES}/batch",
        '{"messages": [{"body": 1, "delay": true}]}',
        f"body.messages[0].delay: {NO_DELAY}",
    ),
    (RECEIVE, '{"quantity": true}', "body.quantity: expected an integer, got true or false"),
    (RECEIVE, '{"wait": "1"}', "body.wait: expected a number, got a string"),
    (RECEIVE, '{"quantity": 0}', "body.quantity: expected an integer >= 1"),
    (REDRIVE, '{"delay": true}', "body.delay: expected a number or null, got true or false"),
    (MESSAGES, '{"body": 1, "ordered": 1}', "body.ordered: expected true or false, got an integer"),
    (MESSAGES, '{"body": 1, "headers": []}', "body.headers: expected an object or null, got a list"),
    (f"{MESSAGES}/batch", '{"messages": []}', "body.messages: expected a list of length >= 1"),
    (f"{MESSAGES}/batch", ODD_HEADERS, f"body.messages[1].headers[...]: {NO_DOUBLE}"),
    (f"{MESSAGES}/batch", TOO_MANY, "body: expected a list of at most length 1000"),
    ("POST /v1/ack", '{"receipts": [1]}', "body.receipts[0]: expected a string, got an integer"),
    (SEARCH, '{"since": 5}', "body.since: expected a string or null, got an integer"),
    (SEARCH, '{"dead_letter_ids": [-1]}', "body.dead_letter_ids[0]: expected an integer >= 0"),
    ("POST /v1/workers/stop", "", "body: missing"),
    (REDRIVE, '{"where": 1}', "body.where: expected a string or null, got an integer"),
    (REDRIVE, '{"patch": []}', "body.patch: expected a list of length >= 1"),
    (REDRIVE, '{"patch": [1]}', "body.patch[0]: expected an object, got an integer"),
    (REDRIVE, '{"dead_letter_ids": ["1"]}', "body.dead_letter_ids[0]: expected an integer, got a string"),
    (f"{LIST}?quantity=0", "", "query.quantity: expected an integer >= 1"),
    (f"{LIST}?quantity=many", "", "query.quantity: expected an integer, got a string"),
    (f"{LIST}?newest_first=perhaps", "", "query.newest_first: expected true or false, got a string"),
    (f"{LIST}/x/state", "", "path.message_id: expected an integer, got a string"),
    (f"GET /v1/queues/{'x' * 48}/messages", "", "path.queue: expected a string of length <= 47"),
    ("GET /v1/queues/orders/statistics?seconds=nan", "", "query.seconds: expected a number > 0"),
    ("POST /v1/queues/orders/forget-export", "", "query.lake: missing"),
]


@pytest.mark.parametrize(("asked", "body", "detail"), REFUSED, ids=lambda value: value[:60])
def test_value_that_is_wrong_is_named_with_its_place(
    http: httpx.Client, asked: str, body: str, detail: str
) -> None:
    method, path = asked.split()
    done = http.request(method, path, content=body, headers={"Content-Type": "application/json"})
    error = done.json()["error"]
    assert (done.status_code, error["code"], error["detail"]) == (422, "invalid_argument", detail)
    assert "hint" not in error


# Of a message: what is not JSON, or what PostgreSQL can't store; with the status and the code.
NOT_STORED = [
    (b"{", 400, "invalid_request"),
    (b'{"body": NaN}', 400, "invalid_request"),
    (b'{"body": "\\ud800"}', 400, "invalid_request"),
    (b'{"body": ' + b"[" * 4_000 + b"]" * 4_000 + b"}", 400, "invalid_request"),
    (b'{"body": 1e999999}', 422, "invalid_argument"),
    (b'{"body": ' + b"9" * 140_000 + b"}", 422, "invalid_argument"),
    (b'{"body": "\\u0000"}', 422, "invalid_body"),
    (b'{"body": "\xff"}', 422, "invalid_body"),
    (b'{"body": 1, "group": "\\u0000"}', 422, "invalid_body"),
]


@pytest.mark.parametrize(("body", "status", "code"), NOT_STORED, ids=lambda value: str(value)[:30])
def test_message_that_can_not_be_stored_is_the_clients_fault(
    http: httpx.Client, queue: str, body: bytes, status: int, code: str
) -> None:
    path = f"/v1/queues/{queue}/messages"
    done = http.post(path, content=body, headers={"Content-Type": "application/json"})
    assert (done.status_code, done.json()["error"]["code"]) == (status, code)
    assert http.get(path).json()["messages"] == []


@pytest.mark.parametrize("time", ["2030-01-01T00:00Z", "2030-01-01T00:00:00+01:00", "20300101T000000Z"])
def test_times_are_read_as_iso_8601_has_them(http: httpx.Client, time: str) -> None:
    done = http.post("/v1/queues/none/dead-letters/search", json={"since": time})
    # The request was understood.
    assert done.json()["error"]["code"] == "queue_not_found"
