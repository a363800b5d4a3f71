"""What one token causes takes neither memory nor connections from others: answers, bodies, schedules, reports."""

import select
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from secrets import token_hex
from time import process_time
from typing import Any

import httpx
import psycopg
import pytest
from service.tests.running import Running, patient, service, token
from service.tests.test_overload import LOCK, STUCK
from tests.cli.program import ask, do, wait_until
from tests.patience import WAIT_SECONDS

LARGE = "x" * 1_000_000


@pytest.fixture
def small(orders: str, tmp_path: Path) -> Iterator[Running]:
    """A service whose answers have at most 2.5 MB of bodies."""
    with service(orders, tmp_path, "--answer-bytes-max", 2_500_000) as started:
        yield started


def send(client: httpx.Client, count: int, queue: str = "orders") -> None:
    for _ in range(count):
        assert client.post(f"/v1/queues/{queue}/messages", json={"body": LARGE}).status_code == 201


def ids(done: httpx.Response) -> list[int]:
    assert done.status_code == 200, done.text[:1000]
    return [each["message_id"] for each in done.json()["messages"]]


def test_lists_end_before_the_answer_is_too_large(small: Running) -> None:
    with small.client() as client:
        send(client, 5)
        page = "/v1/queues/orders/messages?quantity=100"
        assert ids(client.get(page)) == [1, 2]
        assert ids(client.get(f"{page}&after=2")) == [3, 4]
        assert ids(client.get(f"{page}&body_bytes_max=100")) == [1, 2, 3, 4, 5]
        for _ in range(5):
            [message] = client.post("/v1/queues/orders/receive", json={}).json()["messages"]
            client.post("/v1/reject", json={"receipts": [message["receipt"]]})
        letters = client.post("/v1/queues/orders/dead-letters/search", json={}).json()["dead_letters"]
        assert [each["message_id"] for each in letters] == [1, 2]


def test_receives_take_what_fits_and_no_more(small: Running) -> None:
    with small.client() as client:
        send(client, 5)
        assert ids(client.post("/v1/queues/orders/receive", json={"quantity": 100})) == [1, 2]
        assert ids(client.post("/v1/queues/orders/pop", json={"quantity": 100})) == [3, 4]
        [left] = client.post("/v1/queues/orders/receive", json={"quantity": 100}).json()["messages"]
        # What did not fit before was not received.
        assert (left["message_id"], left["attempt"]) == (5, 1)


def test_message_that_is_larger_than_an_answer_is_received_alone(orders: str, tmp_path: Path) -> None:
    with service(orders, tmp_path, "--answer-bytes-max", 1000) as running, running.client() as client:
        send(client, 2)
        assert ids(client.get("/v1/queues/orders/messages")) == [1]
        assert ids(client.post("/v1/queues/orders/receive", json={"quantity": 9})) == [1]
        assert ids(client.post("/v1/queues/orders/pop", json={"quantity": 9})) == [2]


def test_schedules_of_others_are_not_read(orders: str, tmp_path: Path) -> None:
    do(orders, "select pgmq.create('mine')")
    mine, all_queues = token(orders, "mine", queues="mine"), token(orders, "all")
    with (
        service(orders, tmp_path, tokens=True) as running,
        running.client(mine) as client,
        running.client(all_queues) as everybody,
    ):
        large = {"queue": "orders", "cron": "0 0 * * *", "body": token_hex(100_000)}
        assert everybody.put("/v1/schedules/large", json=large).status_code == 200
        assert everybody.put("/v1/schedules/huge", json=large | {"body": "x" * 260_000}).status_code == 422
        assert client.put("/v1/schedules/own", json=large | {"queue": "mine", "body": 1}).status_code == 200
        assert [each["name"] for each in client.get("/v1/schedules").json()["schedules"]] == ["own"]
        [shown, _] = everybody.get("/v1/schedules").json()["schedules"]
        assert shown["body"].keys() == {"spanmq.cut"}
        assert client.post("/v1/schedules/own/pause").status_code == 200
        assert client.post("/v1/schedules/large/pause").status_code == 404


def test_health_asks_about_the_queues_of_the_token_only(orders: str, tmp_path: Path) -> None:
    do(orders, "select pgmq.create('mine')", "select pgmq.create('other')")
    secret = token(orders, "mine", queues="mine", verbs="look")
    surveyed = "create table surveyed (queue text)"
    do(
        orders,
        surveyed,
        "alter function spanmq_core.survey_of rename to survey_before",
        """create function spanmq_core.survey_of(this spanmq_core.queue, at_ timestamptz, out backlog bigint,
            out visible bigint, out in_flight bigint, out delayed bigint, out failed bigint,
            out oldest_ready_at timestamptz, out oldest_lease_at timestamptz, out receivers bigint)
            language plpgsql as $$ begin insert into public.surveyed values (this.name); end $$""",
    )
    with service(orders, tmp_path, tokens=True) as running, running.client(secret, checked=False) as client:
        client.get("/v1/health")
        assert [each["queue"] for each in client.get("/v1/count").json()["queues"]] == ["mine"]
        assert [each["queue"] for each in client.get("/v1/metrics").json()["metrics"]] == ["mine"]
    assert ask(orders, "select array_agg(distinct queue) from surveyed") == ["mine"]


def test_statements_of_one_token_leave_connections_to_others(orders: str, tmp_path: Path) -> None:
    with (
        service(patient(orders), tmp_path, "--pool-size", 4, tokens=True) as running,
        running.clients(orders, "greedy", "other") as [first, second],
        psycopg.connect(orders) as blocker,
        ThreadPoolExecutor(8) as threads,
    ):
        blocker.execute(LOCK)
        slow = [threads.submit(first.get, "/v1/category-rules") for _ in range(8)]
        wait_until(lambda: ask(orders, STUCK.format(2)))
        for _ in range(3):
            assert second.get("/v1/queues").status_code == 200
        assert ask(orders, STUCK.format(3)) is False
        blocker.rollback()
        assert {each.result(WAIT_SECONDS).status_code for each in slow} == {200}


def test_answers_that_are_not_read_have_the_turns_of_their_token_only(orders: str, tmp_path: Path) -> None:
    with (
        service(orders, tmp_path, "--pool-size", 4, tokens=True) as running,
        running.clients(orders, "greedy", "other") as [first, second],
        ExitStack() as stack,
    ):
        send(first, 4)

        def ask_slowly() -> socket.socket:
            connection = stack.enter_context(running.dial())
            allowed = first.headers["Authorization"]
            head = f"GET /v1/queues/orders/messages HTTP/1.1\r\nHost: x\r\nAuthorization: {allowed}\r\n\r\n"
            connection.sendall(head.encode())
            return connection

        unread = [ask_slowly() for _ in range(2)]
        for connection in unread:
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
        # Two answers wait to be read: a third one is not begun, and others are answered.
        third = ask_slowly()
        assert len(second.get("/v1/queues/orders/messages").content) > 3_000_000
        third.setblocking(False)
        with pytest.raises(BlockingIOError):
            third.recv(1)
        third.settimeout(WAIT_SECONDS)
        unread[0].close()
        assert third.recv(100).startswith(b"HTTP/1.1 200")


def test_bodies_of_one_token_have_a_limit_together(orders: str, tmp_path: Path) -> None:
    greedy, other = token(orders, "greedy"), token(orders, "other")
    size = 15 * 1024 * 1024
    with (
        service(orders, tmp_path, tokens=True) as running,
        running.client(other) as second,
        ExitStack() as stack,
    ):
        head = (
            "POST /v1/queues/orders/messages HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {greedy}\r\nContent-Length: {size}\r\n\r\n"
        )
        part = b'{"body": "' + b"x" * (size - 20)
        connections = [stack.enter_context(running.dial()) for _ in range(5)]
        # The one whose bytes are too many is refused, mostly the fifth, and may see the end of the connection instead.
        for connection in connections:
            with suppress(ConnectionError):
                connection.sendall(head.encode() + part)
        [refused], _, _ = select.select(connections, [], [], WAIT_SECONDS)
        with suppress(ConnectionError):
            assert b" 429 " in refused.recv(1000)
        connections.remove(refused)
        with running.client(greedy) as first:
            # A part of the refused one may still be on its way.
            wait_until(lambda: first.get("/v1/queues").status_code == 200)
        assert second.post("/v1/queues/orders/messages", json={"body": "x" * size}).status_code == 201
        for connection in connections:
            connection.sendall(b'"}' + b" " * 8)
            assert connection.recv(100).startswith(b"HTTP/1.1 201")


MANY = ",".join(f'"key{n}":{n}' for n in range(750_000))


@pytest.mark.parametrize("place", ["body", "messages"])
def test_body_of_many_members_keeps_nobody_waiting(orders: str, tmp_path: Path, place: str) -> None:
    text = (
        f'{{"body":{{{MANY}}}}}'
        if place == "body"
        else f'{{"messages":[{{"body":[{{{MANY}}}],"group":"a"}}]}}'
    )
    path = "/v1/queues/orders/messages" + ("" if place == "body" else "/batch")
    headers = {"Content-Type": "application/json"}
    with (
        service(orders, tmp_path) as running,
        running.client(checked=False) as client,
        running.client() as other,
        ThreadPoolExecutor(1) as threads,
    ):
        other.get("/health/live")
        sending = threads.submit(client.post, path, content=text, headers=headers)
        slowest = 0.0
        while not sending.done():
            # In processor time, of the service too, which is a thread here: it does not depend on other programs.
            began = process_time()
            assert other.get("/health/live").status_code == 200
            slowest = max(slowest, process_time() - began)
        assert sending.result().status_code == 201
    body = ask(orders, "select message from pgmq.q_orders")
    assert len(body if place == "body" else body[0]) == 750_000
    # Parsing it at once takes more than a second, on a fast machine too.
    assert slowest < 1.0


@pytest.mark.parametrize("padding", [0, 200_000], ids=["small", "large"])
def test_numbers_of_bodies_keep_their_digits_at_each_size(orders: str, tmp_path: Path, padding: int) -> None:
    do(orders, "select pgmq.bind_topic('t', 'orders')")
    number = "12345678901234567.89"
    body = f'{{"price": {number}, "huge": 1e400, "rate": 1.10, "pad": "{"x" * padding}"}}'
    headers = {"Content-Type": "application/json"}
    with service(orders, tmp_path) as running, running.client() as client:
        for path, text in (
            ("queues/orders/messages", f'{{"body": {body}}}'),
            ("queues/orders/messages/batch", f'{{"messages": [{{"body": {body}}}, {{"body": {body}}}]}}'),
            ("topics/t/messages", f'{{"body": {body}}}'),
            ("topics/t/messages/batch", f'{{"messages": [{{"body": {body}}}]}}'),
        ):
            done = client.post(f"/v1/{path}", content=text, headers=headers)
            assert done.status_code == 201, done.text
        shown = client.get("/v1/queues/orders/messages").text
    assert shown.count(f'"price": {number}') == 5
    stored = ask(
        orders,
        "select array_agg(distinct array[message->>'price', length(message->>'huge')::text, message->>'rate'])"
        " from pgmq.q_orders",
    )
    assert stored == [[number, "401", "1.10"]]


# What is hard to read, in one place and in another: a hundredth of it takes milliseconds.
HARD = {
    "deep": "[" * 7_000_000 + "]" * 7_000_000,
    "empty lists": "[" + "[]," * 4_600_000 + "1]",
    "texts": "[" + '"",' * 4_600_000 + "1]",
    "escapes": '["' + "\\n" * 7_000_000 + '"]',
}


@pytest.mark.parametrize("place", ["body", "messages", "headers", "unknown", "sqs"])
@pytest.mark.parametrize("kind", HARD)
def test_request_that_is_hard_to_read_costs_less_than_a_second(
    orders: str, tmp_path: Path, place: str, kind: str
) -> None:
    text = {
        "body": f'{{"body":{HARD[kind]}}}',
        "messages": f'{{"messages":[{{"body":{HARD[kind]}}}]}}',
        "headers": f'{{"body":1,"headers":{{"a":{HARD[kind]}}}}}',
        "unknown": f'{{"body":1,"more":{HARD[kind]}}}',
        "sqs": f'{{"QueueUrl":{HARD[kind]}}}',
    }[place]
    path = "/v1/queues/orders/messages" + ("/batch" if place == "messages" else "")
    headers = {"Content-Type": "application/json"}
    if place == "sqs":
        path, headers = "/", {"X-Amz-Target": "AmazonSQS.SendMessage"}
    with service(orders, tmp_path) as running, running.client(checked=False) as client:
        client.get("/health/live")
        # Beside what the same bytes cost in one string, which nothing has to be done for.
        costs = []
        for content in (f'{{"body":"{"x" * len(text)}"}}', text):
            began = process_time()
            done = client.post(path, content=content, headers=headers)
            costs.append(process_time() - began)
            assert done.status_code in (201, 400, 413, 422), done.text[:1000]
    assert costs[1] - costs[0] < 1.0, costs


def test_large_bodies_are_what_was_sent(orders: str, tmp_path: Path) -> None:
    filler = "x" * 200_000
    bodies: list[Any] = [
        {"text": filler, "body": {"body": ["}", '"', "\\", '\\"]']}},
        [filler, {"messages": [{"body": {}}]}],
        filler,
        17,
        {},
        None,
    ]
    with service(orders, tmp_path) as running, running.client() as client:
        batch = {"messages": [{"body": body, "headers": {"body": "[{"}} for body in bodies]}
        assert client.post("/v1/queues/orders/messages/batch", json=batch).status_code == 201
        single = {"headers": {"body": "x"}, "body": bodies[0], "group": "body"}
        keyed = {"Idempotency-Key": "a"}
        sent = [client.post("/v1/queues/orders/messages", json=single, headers=keyed) for _ in range(2)]
        assert [each.status_code for each in sent] == [201, 201]
        found = client.get("/v1/queues/orders/messages?quantity=10").json()["messages"]
        assert [each["body"] for each in found] == [*bodies, bodies[0]]
        path = "/v1/queues/orders/messages"
        broken = (
            (f'{{"body": [1 2 "{filler}"]}}', 400),
            (f'{{"body": ["{filler}"', 400),
            (f'{{"body": {{"{filler}"]}}', 400),
            (f'{{"body": 1, "headers": {{"a": [{"1," * 150_000}1]}}}}', 413),
            (f'{{"body": 1, "headers": {{{MANY}}}}}', 413),
        )
        for text, status in broken:
            done = client.post(path, content=text, headers={"Content-Type": "application/json"})
            assert done.status_code == status, (text[:20], done.text)
