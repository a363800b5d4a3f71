"""Recurring messages through the client, and by itself."""

import logging
import sys
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from tests.patience import WAIT_SECONDS

from spanmq import errors
from spanmq.client import AsyncClient

pytestmark = pytest.mark.reused


async def let_pass(client: AsyncClient, hours: int) -> None:
    """Let everything have happened so much earlier."""
    async with client.transaction() as transaction:
        move = "set {0} = {0} - make_interval(hours => %s)"
        for table, column in (("schedule_time", "due_at"), ("schedule", "planned_until")):
            await transaction.connection.execute(f"update spanmq_core.{table} {move.format(column)}", [hours])


async def test_schedule_plans_its_times(client: AsyncClient) -> None:
    await client.schedules.create(
        "nightly", "orders", "30 2 * * *", {"a": 1}, time_zone="Europe/Berlin", group="g"
    )
    [schedule] = await client.schedules.list()
    assert schedule.headers == {"x-pgmq-group": "g"}
    assert schedule.next_at is not None
    now = datetime.now(UTC)
    assert now - timedelta(minutes=1) < schedule.next_at < now + timedelta(hours=26)
    assert schedule.planned_until > now + timedelta(days=300)


@pytest.mark.parametrize("catch_up", [False, True])
async def test_house_keeper_sends_what_was_missed_and_plans_on(client: AsyncClient, catch_up: bool) -> None:
    # Half an hour from now: none falls due while the test runs.
    minute = (datetime.now(UTC).minute + 30) % 60
    await client.schedules.create("hourly", "orders", f"{minute} * * * *", 1, catch_up=catch_up)
    # All that was planned is over, and 200 hours more.
    await let_pass(client, 1_200)
    for _ in range(30):
        if not await client.admin.maintain(100) and (await client.schedules.list())[
            0
        ].planned_until > datetime.now(UTC):
            break
    while await client.admin.maintain(100):
        pass
    sent = (await client.queues.metrics("orders")).length
    # Without catching up: one for what was planned; what was not even planned is no time.
    assert sent == (1_200 if catch_up else 1)
    [schedule] = await client.schedules.list()
    assert schedule.next_at is not None
    assert schedule.next_at > datetime.now(UTC) - timedelta(minutes=1)


async def test_background_sends_at_the_time(database: str, client: AsyncClient) -> None:
    async with AsyncClient(database, maintain_interval=0.05) as keeper:
        await keeper.schedules.create("often", "orders", "* * * * * *", 1)
        [message] = await keeper.receive("orders", wait=WAIT_SECONDS)
    assert message.headers is not None
    late = message.enqueued_at - datetime.fromisoformat(message.headers["x-spanmq-scheduled-at"])
    assert timedelta() <= late < timedelta(seconds=WAIT_SECONDS)


async def test_schedule_belongs_to_the_transaction(database: str, client: AsyncClient) -> None:
    async with await psycopg.AsyncConnection.connect(database) as connection:
        await AsyncClient(connection=connection).schedules.create("a", "orders", "* * * * *", 1)
        await connection.rollback()
    assert await client.schedules.list() == []


async def test_without_the_package_it_is_said_and_house_is_kept(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await client.schedules.create("hourly", "orders", "0 * * * *", 1)
    await let_pass(client, 1_200)
    monkeypatch.setitem(sys.modules, "cronsim", None)
    with pytest.raises(errors.ExtraNotInstalledError):
        await client.schedules.create("other", "orders", "0 * * * *", 1)
    with caplog.at_level(logging.WARNING, logger="spanmq"):
        while await client.admin.maintain():
            pass
        await client.admin.maintain()
    assert (await client.queues.metrics("orders")).length == 1
    assert [record.getMessage().split()[0] for record in caplog.records] == ["schedule_not_planned"]
