"""The transactional outbox through other software: what is sent stands and falls with its transaction."""

from contextlib import suppress

import pytest
from tests.client.sessions_async import IN_AUTOCOMMIT, SESSIONS, AsyncOpener

from spanmq import errors
from spanmq.client import AsyncClient
from spanmq.codec.body import RawJson

sessions = pytest.mark.parametrize("opener", SESSIONS)


async def length(client: AsyncClient) -> int:
    return (await client.queues.metrics("orders")).length


@sessions
async def test_every_kind_of_call_works_on_a_session(
    database: str, opener: AsyncOpener, client: AsyncClient
) -> None:
    async with opener(database) as session:
        outbox = AsyncClient(connection=session)
        await outbox.queues.create("events", unlogged=True)
        assert {queue.name for queue in await outbox.queues.list()} == {"orders", "events"}
        body = {"text": 'it\'s 100% : :name \\ "é" {} $1', "list": [1, 2.5, None]}
        assert await outbox.send("orders", body, headers={"h": ":x"}, group="g", delay=0) == 1
        more = await outbox.send_batch("orders", [b"\0\xff", "text"], headers=[None, {"a": "%s"}])
        assert more == [2, 3]
        first, second, third = await outbox.receive("orders", 5, slots=1)
        assert (first.body, first.headers, first.group) == (body, {"h": ":x", "x-pgmq-group": "g"}, "g")
        assert (second.body, third.body, third.headers) == (b"\0\xff", "text", {"a": "%s"})
        assert first.leased_until > first.enqueued_at
        assert first.lease_id is not None
        assert {settled.outcome for settled in await outbox.ack([first, second])} == {"acked"}
        assert await outbox.delete("orders", [3, 99]) == [3]
        assert await outbox.delete("orders", [3]) == []
        assert await length(outbox) == 0
        assert await outbox.receive("orders") == []
        assert await outbox.receive("orders", wait=0.02) == []
        assert (await outbox.queues.set_policy("orders", max_attempts=3, keep="1 day")).keep == "1 day"
        assert (await outbox.queues.policy("orders")).max_attempts == 3
        category = await outbox.dead_letters.categories.set_policy(
            "TRANSIENT", {"max_attempts": 9}, queue="orders"
        )
        assert category["max_attempts"] == 9
        assert await outbox.admin.flavour() == "spanmq"
        assert outbox.connection is session


@sessions
async def test_session_sends_when_it_commits(database: str, opener: AsyncOpener, client: AsyncClient) -> None:
    async def send(*, fail: bool) -> None:
        async with opener(database) as session:
            outbox = AsyncClient(connection=session)
            await outbox.send("orders", 1)
            await outbox.send_batch("orders", range(1_500))
            assert await length(client) == 0
            if fail:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await send(fail=True)
    assert await length(client) == 0
    await send(fail=False)
    assert await length(client) == 1_501


@sessions
async def test_failed_transaction_of_a_session_says_so_at_every_call(
    database: str, opener: AsyncOpener, client: AsyncClient
) -> None:
    async def swallow() -> None:
        async with opener(database) as session:
            outbox = AsyncClient(connection=session)
            with pytest.raises(errors.QueueNotFoundError):
                await outbox.send("nothing", 1)
            with pytest.raises(errors.InvalidTransactionError):
                await outbox.send("orders", 1)
            with pytest.raises(errors.InvalidTransactionError):  # which looks first for what is installed
                await outbox.receive("orders")
            with pytest.raises(errors.InvalidTransactionError):
                await outbox.admin.flavour()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await swallow()


@sessions
async def test_errors_on_a_session_are_typed(database: str, opener: AsyncOpener, client: AsyncClient) -> None:
    with pytest.raises(errors.QueueNotFoundError) as caught:
        async with opener(database) as session:
            await AsyncClient(connection=session).send("nothing", 1)
    assert (caught.value.queue, caught.value.sqlstate) == ("nothing", "42P01")
    with pytest.raises(errors.NotPossibleError, match="install"):
        async with opener(database) as session:
            await AsyncClient(connection=session).install()


@sessions
async def test_session_on_upstream_names_what_is_missing(upstream_database: str, opener: AsyncOpener) -> None:
    async with opener(upstream_database) as session:
        outbox = AsyncClient(connection=session)
        await outbox.queues.create("orders")
        with pytest.raises(errors.NotSupportedByUpstreamError):
            await outbox.receive("orders")
        await outbox.send("orders", 1)
        assert [message.body for message in await outbox.read("orders")] == [1]


async def send_and_swallow(outbox: AsyncClient) -> None:
    async with outbox.transaction() as within:
        await within.send("orders", "lost")
        with suppress(errors.QueueNotFoundError):
            await within.send("nothing", 1)


@sessions
async def test_transaction_of_a_client_on_a_session_is_a_savepoint(
    database: str, opener: AsyncOpener, client: AsyncClient
) -> None:
    async with opener(database) as session:
        outbox = AsyncClient(connection=session)
        for queue in ("orders", "nothing"):
            await outbox.send("orders", "before")
            with suppress(errors.QueueNotFoundError):
                async with outbox.transaction() as within:
                    await within.send("orders", queue)
                    async with within.transaction() as inner:
                        await inner.send(queue, "inner")
        with pytest.raises(errors.InvalidTransactionError):
            await send_and_swallow(outbox)
        assert await length(client) == 0
    sent = [message.body for message in await client.peek("orders")]
    assert sent == ["before", "orders", "inner", "before"]


# Only the server notices half of a character, in the second of two calls.
SPOILT = [*range(1_500), RawJson('"\\ud800"')]


@pytest.mark.parametrize("opener", IN_AUTOCOMMIT)
async def test_batch_in_autocommit_is_sent_whole_or_not_at_all(
    database: str, opener: AsyncOpener, client: AsyncClient
) -> None:
    async with opener(database) as session:
        outbox = AsyncClient(connection=session)
        with pytest.raises(errors.InvalidBodyError):
            await outbox.send_batch("orders", SPOILT)
        assert await length(client) == 0
        await outbox.send_batch("orders", range(1_500))
        assert await length(client) == 1_500
        with suppress(ZeroDivisionError):
            async with outbox.transaction() as within:
                async with within.transaction() as inner:
                    await inner.send("orders", "rolled back")
                raise ZeroDivisionError
        with pytest.raises(errors.InvalidTransactionError):
            await send_and_swallow(outbox)
        async with outbox.transaction() as within:
            await within.send("orders", "committed")
        assert await length(client) == 1_501
        first, second = await outbox.receive("orders"), await outbox.receive("orders")
        assert {settled.outcome for settled in await outbox.ack([*first, *second])} == {"acked"}
