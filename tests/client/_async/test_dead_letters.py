"""Dead letters and categories through the client: every argument arrives, every column comes back typed."""

from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from spanmq.client import AsyncClient
from spanmq.codec.encryption import Unopened
from spanmq.errors import InvalidArgumentError
from spanmq.model import CategoryPolicy, CategoryRule, DeadLetterCount

pytestmark = pytest.mark.reused


async def kill(client: AsyncClient, n: int = 1, **reason: Any) -> list[int]:
    ids = await client.send_batch("orders", [{"n": i} for i in range(n)], group="g")
    await client.reject(await client.receive("orders", n), **({"error": "boom"} | reason))
    return ids


async def test_dead_letter_comes_back_with_all_that_it_keeps(client: AsyncClient) -> None:
    [id_] = await client.send_batch("orders", [{"n": 0}], headers={"k": "v"}, group="g")
    [sent] = await client.receive("orders")
    await client.nack(sent, error="first", retry_in=0.0)
    await client.reject(
        await client.receive("orders"),
        error="second",
        category="BUSINESS",
        error_class="shop.Refused",
        traceback="at line 1",
        worker="w1",
    )
    [letter] = await client.dead_letters.list("orders")
    assert (letter.queue, letter.message_id, letter.body) == ("orders", id_, {"n": 0})
    assert (letter.headers, letter.group) == ({"k": "v", "x-pgmq-group": "g"}, "g")
    assert (letter.attempts, letter.category, letter.error) == (2, "BUSINESS", "second")
    assert (letter.error_class, letter.traceback, letter.worker) == ("shop.Refused", "at line 1", "w1")
    assert sent.enqueued_at == letter.enqueued_at < letter.first_failed_at
    assert letter.first_failed_at < letter.last_failed_at <= letter.dead_at
    assert await client.peek("orders") == []
    assert (letter.redriven_at, letter.redriven_as) == (None, None)
    [failure] = letter.history
    assert (failure["error"], failure["outcome"], failure["attempt"]) == ("first", "retrying", 1)
    assert failure["failed_at"] == letter.first_failed_at


async def test_headers_that_cannot_be_read_keep_no_other_from_a_list(
    client: AsyncClient, observer: psycopg.Connection[Any]
) -> None:
    deep = """('{"a":' || repeat('[', 5000) || repeat(']', 5000) || '}')::jsonb"""
    observer.execute(f"select pgmq.send('orders', '1', {deep}), pgmq.send('orders', '2')".encode())
    await client.queues.set_policy("orders", max_attempts=1)
    await client.reject(await client.receive("orders", 2))
    first, second = await client.dead_letters.list("orders")
    assert isinstance(first.body, Unopened)
    assert second.body == 2
    schedule = "select spanmq.schedule('{}', 'orders', '0 0 1 1 *', '3', headers => {})"
    observer.execute(schedule.format("first", deep).encode())
    observer.execute(schedule.format("second", "null").encode())
    bodies = [schedule.body for schedule in await client.schedules.list()]
    assert isinstance(bodies[0], Unopened)
    assert bodies[1] == 3


async def test_filters_arrive(client: AsyncClient) -> None:
    one, two = await kill(client, 2, category="TRANSIENT")

    async def chosen(**filters: Any) -> list[int]:
        return [letter.message_id for letter in await client.dead_letters.list("orders", **filters)]

    assert await chosen(payload={"n": 1}) == await chosen(where="$.n > 0") == [two]
    numbers = [letter.dead_letter_id for letter in await client.dead_letters.list()]
    assert await chosen(dead_letter_ids=numbers[1:]) == [two]
    assert await chosen(dead_letter_ids=[]) == []
    assert await client.dead_letters.count() == [DeadLetterCount("orders", "TRANSIENT", 2)]
    planned = await client.dead_letters.redrive("orders", payload={"n": 1}, delay=5, dry_run=True)
    assert [letter.message_id for letter in planned] == [two]
    assert await chosen() == [one, two]
    done = await client.dead_letters.redrive("orders", rate=0.5, delay=timedelta(seconds=5))
    assert [letter.message_id for letter in done] == [one, two]
    times = [letter.visible_at for letter in done if letter.visible_at is not None]
    assert times[1] - times[0] == timedelta(seconds=2)
    assert await chosen() == []
    assert [letter.redriven_as for letter in await client.dead_letters.list("orders", redriven=True)] == [
        one,
        two,
    ]
    assert len(await client.dead_letters.list("orders", redriven=None)) == 2
    assert await client.dead_letters.discard("orders", redriven=None, limit=1, dry_run=True) == 1


async def test_one_is_put_back_with_other_headers_or_null(client: AsyncClient) -> None:
    one, two = await kill(client, 2)
    headers = {"x-pgmq-group": "g", "by": "me"}
    assert await client.dead_letters.edit("orders", one, headers=headers, delay=0) == one
    assert await client.dead_letters.edit("orders", two, body=None, delay=0) == two
    first, second = await client.receive("orders", 3)
    assert (first.body, first.headers) == ({"n": 0}, headers)
    assert (second.body, second.headers) == (None, {"x-pgmq-group": "g"})


RENAME = [{"op": "move", "from": "/n", "path": "/number"}]


async def test_what_no_server_could_understand_is_refused_here(client: AsyncClient) -> None:
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
            await call()


async def test_categories_and_their_rules(client: AsyncClient) -> None:
    await client.dead_letters.categories.set_rule(
        "mine", "BUSINESS", error="boom", error_class="^shop", place=7, queue="orders"
    )
    rule = CategoryRule("mine", "BUSINESS", "boom", "^shop", 7, "orders")
    assert (await client.dead_letters.categories.list_rules("orders"))[0] == rule
    assert rule not in await client.dead_letters.categories.list_rules()
    assert (
        await client.dead_letters.categories.classify("boom", error_class="shop.Error", queue="orders")
        == "BUSINESS"
    )
    changed = await client.dead_letters.categories.set_policy(
        "BUSINESS", {"retries": True, "backoff_base": 2.5}, queue="orders"
    )
    assert (changed["retries"], changed["backoff_base"]) == (True, 2.5)
    of_queue = {
        policy.category: policy for policy in await client.dead_letters.categories.list_policies("orders")
    }
    assert of_queue["BUSINESS"] == CategoryPolicy("BUSINESS", True, None, 2.5, None, None, "orders")
    assert not (await client.dead_letters.categories.set_policy("BUSINESS", None, queue="orders"))["retries"]
    with pytest.raises(InvalidArgumentError):
        await client.dead_letters.categories.set_policy("BUSINESS", {"retries": object()})


async def test_dead_letters_come_back_over_a_session_of_ones_own(client: AsyncClient, database: str) -> None:
    await kill(client)
    async with await psycopg.AsyncConnection.connect(database) as connection:
        inside = AsyncClient(connection=connection)
        [letter] = await inside.dead_letters.list()
        assert letter.history == []
        [planned] = await inside.dead_letters.redrive("orders", patch=RENAME, dry_run=True)
        assert (planned.before, planned.after) == ({"n": 0}, {"number": 0})
        await inside.dead_letters.redrive("orders")
        await connection.rollback()
    assert len(await client.dead_letters.list()) == 1
