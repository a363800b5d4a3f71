# Generated from tests/client/_async/test_dead_letters.py by tools/generate_sync.py: change that file.

"""Dead letters and categories through the client: every argument arrives, every column comes back typed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from spanmq.client import Client
from spanmq.errors import InvalidArgumentError, NotFoundError
from spanmq.model import CategoryPolicy, CategoryRule, DeadLetterCount


@pytest.fixture
def database(reused_database: str) -> str:
    return reused_database


def kill(client: Client, n: int = 1, **reason: Any) -> list[int]:
    ids = client.send_batch("orders", [{"n": i} for i in range(n)], group="g")
    client.reject(client.receive("orders", n), **({"error": "boom"} | reason))
    return ids


def test_dead_letter_comes_back_with_all_that_it_keeps(client: Client) -> None:
    [id_] = client.send_batch("orders", [{"n": 0}], headers={"k": "v"}, group="g")
    client.nack(client.receive("orders"), error="first", retry_in=0.0)
    before = datetime.now(UTC) - timedelta(minutes=1)
    client.reject(
        client.receive("orders"),
        error="second",
        category="BUSINESS",
        error_class="shop.Refused",
        traceback="at line 1",
        worker="w1",
    )
    [letter] = client.dead_letters.list("orders")
    assert (letter.queue, letter.message_id, letter.body) == ("orders", id_, {"n": 0})
    assert (letter.headers, letter.group) == ({"k": "v", "x-pgmq-group": "g"}, "g")
    assert (letter.attempts, letter.category, letter.error) == (2, "BUSINESS", "second")
    assert (letter.error_class, letter.traceback, letter.worker) == ("shop.Refused", "at line 1", "w1")
    assert before < letter.enqueued_at < letter.first_failed_at < letter.last_failed_at <= letter.dead_at
    assert (letter.redriven_at, letter.redriven_as) == (None, None)
    [failure] = letter.history
    assert (failure["error"], failure["outcome"], failure["attempt"]) == ("first", "retrying", 1)
    assert failure["failed_at"] == letter.first_failed_at


def test_filters_arrive(client: Client) -> None:
    one, two = kill(client, 2, error="Time-out", error_class="Slow", category="TRANSIENT")
    now = datetime.now(UTC)

    def found(**filters: Any) -> list[int]:
        return [letter.message_id for letter in client.dead_letters.list("orders", **filters)]

    assert found(category="TRANSIENT", error="time.out", error_class="Slow") == [one, two]
    assert found(category="BUSINESS") + found(error="none") + found(error_class="Fast") == []
    assert found(since=now - timedelta(hours=1), until=now + timedelta(hours=1)) == [one, two]
    assert found(since=now + timedelta(hours=1)) == found(until=now - timedelta(hours=1)) == []
    assert found(payload={"n": 1}) == [two]
    assert found(limit=1) == [one]
    assert found(after=(client.dead_letters.list())[0].dead_letter_id) == [two]
    assert client.dead_letters.count() == [DeadLetterCount("orders", "TRANSIENT", 2)]
    planned = client.dead_letters.redrive("orders", payload={"n": 1}, delay=5, dry_run=True)
    assert [each.message_id for each in planned] == [two]
    assert found() == [one, two]
    done = client.dead_letters.redrive("orders", rate=0.5, delay=timedelta(seconds=5))
    assert [each.message_id for each in done] == [one, two]
    assert done[1].visible_at - done[0].visible_at == timedelta(seconds=2)
    assert found() == []
    assert [letter.redriven_as for letter in client.dead_letters.list("orders", redriven=True)] == [
        one,
        two,
    ]
    assert len(client.dead_letters.list("orders", redriven=None)) == 2
    assert client.dead_letters.discard("orders", redriven=None, limit=1, dry_run=True) == 1
    assert client.dead_letters.discard("orders") == 0
    assert client.dead_letters.discard("orders", redriven=True) == 2


def test_one_is_put_back_repaired(client: Client) -> None:
    one, two, three = kill(client, 3)
    assert client.dead_letters.edit("orders", one, body={"repaired": True}, delay=0) == one
    assert client.dead_letters.edit("orders", two, headers={"x-pgmq-group": "g", "by": "me"}, delay=0) == two
    assert client.dead_letters.edit("orders", three, body=None, delay=0) == three
    first, second, third = client.receive("orders", 3)
    assert (first.body, first.headers) == ({"repaired": True}, {"x-pgmq-group": "g"})
    assert (second.body, second.headers) == ({"n": 1}, {"x-pgmq-group": "g", "by": "me"})
    assert third.body is None
    with pytest.raises(NotFoundError):
        client.dead_letters.edit("orders", one)


def test_what_no_server_could_understand_is_refused_here(client: Client) -> None:
    naive: Any = datetime(2030, 1, 1)
    for call in (
        lambda: client.dead_letters.list("orders", since=naive),
        lambda: client.dead_letters.list("orders", until="yesterday"),  # type: ignore[arg-type]
        lambda: client.dead_letters.list("orders", redriven=1),  # type: ignore[arg-type]
        lambda: client.dead_letters.redrive("orders", rate="fast"),  # type: ignore[arg-type]
        lambda: client.dead_letters.redrive("orders", delay=-1),
        lambda: client.dead_letters.redrive("orders", rate=0),
    ):
        with pytest.raises(InvalidArgumentError):
            call()
    with pytest.raises(InvalidArgumentError):
        client.dead_letters.list("orders", error="(")


def test_categories_and_their_rules(client: Client) -> None:
    assert client.dead_letters.categories.classify("Connection refused") == "DEPENDENCY"
    client.dead_letters.categories.set_rule(
        "mine", "BUSINESS", error="boom", error_class="^shop", place=7, queue="orders"
    )
    rule = CategoryRule("mine", "BUSINESS", "boom", "^shop", 7, "orders")
    assert (client.dead_letters.categories.list_rules("orders"))[0] == rule
    assert rule not in client.dead_letters.categories.list_rules()
    assert (
        client.dead_letters.categories.classify("boom", error_class="shop.Error", queue="orders")
        == "BUSINESS"
    )
    assert client.dead_letters.categories.drop_rule("mine", queue="orders")
    assert not client.dead_letters.categories.drop_rule("mine", queue="orders")
    changed = client.dead_letters.categories.set_policy(
        "BUSINESS", {"retries": True, "backoff_base": 2.5}, queue="orders"
    )
    assert (changed["retries"], changed["backoff_base"]) == (True, 2.5)
    of_queue = {each.category: each for each in client.dead_letters.categories.list_policies("orders")}
    assert of_queue["BUSINESS"] == CategoryPolicy("BUSINESS", True, None, 2.5, None, None, "orders")
    assert not (client.dead_letters.categories.set_policy("BUSINESS", None, queue="orders"))["retries"]
    with pytest.raises(InvalidArgumentError):
        client.dead_letters.categories.set_policy("BUSINESS", {"retries": object()})
    with pytest.raises(InvalidArgumentError):
        client.dead_letters.categories.set_rule("bad", "BUSINESS", error="[")


def test_dead_letters_come_back_over_a_session_of_ones_own(client: Client, database: str) -> None:
    kill(client)
    with psycopg.Connection.connect(database) as connection:
        inside = Client(connection=connection)
        [letter] = inside.dead_letters.list()
        assert letter.history == []
        inside.dead_letters.redrive("orders")
        connection.rollback()
    assert len(client.dead_letters.list()) == 1
