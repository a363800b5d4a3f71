"""Requests whose values are wrong: the answer says where the value is and what it must be, in the words of JSON."""

import pytest
from service.tests.running import Running

MESSAGES = "/v1/queues/orders/messages"
TOO_MANY = '{"messages": [' + ", ".join(['{"body": 1}'] * 1_001) + "]}"
SEARCH = "/v1/queues/orders/dead-letters/search"
REDRIVE = "/v1/queues/orders/dead-letters/redrive"
RECEIVE = "/v1/queues/orders/receive"
NO_TIME = "body.delay: a time must be a string in ISO 8601, with a time zone"
NO_DELAY = "expected a number or a string or null, got true or false"


@pytest.mark.parametrize(
    ("path", "body", "detail"),
    [
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
        (
            f"{MESSAGES}/batch",
            '{"messages": [{"body": 1}, {"body": 1, "headers": {"a": 1e400}}]}',
            "body.messages[1].headers[...]: outside of a body a number is a double, which 1e400 can't be",
        ),
        (f"{MESSAGES}/batch", TOO_MANY, "body: expected a list of at most length 1000"),
        ("/v1/ack", '{"receipts": [1]}', "body.receipts[0]: expected a string, got an integer"),
        (SEARCH, '{"since": 5}', "body.since: expected a string or null, got an integer"),
        (SEARCH, '{"dead_letter_ids": [-1]}', "body.dead_letter_ids[0]: expected an integer >= 0"),
        ("/v1/workers/stop", "", "body: missing"),
    ],
)
def test_value_of_a_body_that_is_wrong_is_named(shared: Running, path: str, body: str, detail: str) -> None:
    with shared.client() as client:
        done = client.post(path, content=body, headers={"Content-Type": "application/json"})
    error = done.json()["error"]
    assert (done.status_code, error["code"], error["detail"]) == (422, "invalid_argument", detail)
    assert "hint" not in error


@pytest.mark.parametrize(
    ("path", "detail"),
    [
        (f"{MESSAGES}?quantity=0", "query.quantity: expected an integer >= 1"),
        (f"{MESSAGES}?quantity=many", "query.quantity: expected an integer, got a string"),
        (f"{MESSAGES}?newest_first=perhaps", "query.newest_first: expected true or false, got a string"),
        ("/v1/queues/orders/messages/x/state", "path.message_id: expected an integer, got a string"),
        (f"/v1/queues/{'x' * 48}/messages", "path.queue: expected a string of length <= 47"),
        ("/v1/queues/orders/statistics?seconds=nan", "query.seconds: expected a number > 0"),
    ],
)
def test_value_of_a_path_or_a_query_that_is_wrong_is_named(shared: Running, path: str, detail: str) -> None:
    with shared.client() as client:
        error = client.get(path).json()["error"]
    assert (error["code"], error["detail"]) == ("invalid_argument", detail)


def test_missing_value_of_a_query_is_named(shared: Running) -> None:
    with shared.client() as client:
        done = client.post("/v1/queues/orders/forget-export")
    assert done.json()["error"]["detail"] == "query.lake: missing"


@pytest.mark.parametrize("time", ["2030-01-01T00:00Z", "2030-01-01T00:00:00+01:00", "20300101T000000Z"])
def test_times_are_read_as_iso_8601_has_them(shared: Running, time: str) -> None:
    with shared.client() as client:
        done = client.post("/v1/queues/none/dead-letters/search", json={"since": time})
        # The request was understood.
        assert done.json()["error"]["code"] == "queue_not_found"
