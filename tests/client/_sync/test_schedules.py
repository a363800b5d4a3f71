# Generated from tests/client/_async/test_schedules.py by tools/generate_sync.py: change that file.

"""Recurring messages through the client, and by itself."""

import logging
import sys
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from spanmq import errors
from spanmq.client import Client


@pytest.fixture
def database(reused_database: str) -> str:
    return reused_database


def let_pass(client: Client, hours: int) -> None:
    """Let everything have happened so much earlier."""
    with client.transaction() as transaction:
        move = "set {0} = {0} - make_interval(hours => %s)"
        for table, column in (("schedule_time", "due_at"), ("schedule", "planned_until")):
            transaction.connection.execute(f"update spanmq_core.{table} {move.format(column)}", [hours])


def test_schedule_plans_its_times(client: Client) -> None:
    client.schedules.create("nightly", "orders", "30 2 * * *", {"a": 1}, time_zone="Europe/Berlin", group="g")
    [schedule] = client.schedules.list()
    assert (schedule.name, schedule.queue, schedule.cron) == ("nightly", "orders", "30 2 * * *")
    assert schedule.body == {"a": 1}
    assert schedule.headers == {"x-pgmq-group": "g"}
    assert not schedule.catch_up
    assert not schedule.is_paused
    assert schedule.next_at is not None
    now = datetime.now(UTC)
    assert now - timedelta(minutes=1) < schedule.next_at < now + timedelta(hours=26)
    assert schedule.planned_until > now + timedelta(days=300)


@pytest.mark.parametrize("catch_up", [False, True])
def test_house_keeper_sends_what_was_missed_and_plans_on(client: Client, catch_up: bool) -> None:
    # Half an hour from now: none falls due while the test runs.
    minute = (datetime.now(UTC).minute + 30) % 60
    client.schedules.create("hourly", "orders", f"{minute} * * * *", 1, catch_up=catch_up)
    # All that was planned is over, and 200 hours more.
    let_pass(client, 1_200)
    for _ in range(30):
        if not client.admin.maintain(100) and (client.schedules.list())[0].planned_until > datetime.now(UTC):
            break
    while client.admin.maintain(100):
        pass
    sent = (client.queues.metrics("orders")).length
    # Without catching up: one for what was planned; what was not even planned is no time.
    assert sent == (1_200 if catch_up else 1)
    [schedule] = client.schedules.list()
    assert schedule.next_at is not None
    assert schedule.next_at > datetime.now(UTC) - timedelta(minutes=1)


def test_background_sends_at_the_time(database: str, client: Client) -> None:
    with Client(database, maintain_interval=0.05) as keeper:
        keeper.schedules.create("often", "orders", "* * * * * *", 1)
        [message] = keeper.receive("orders", wait=30)
    assert message.headers is not None
    late = message.enqueued_at - datetime.fromisoformat(message.headers["x-spanmq-scheduled-at"])
    assert timedelta() <= late < timedelta(seconds=20)


@pytest.mark.parametrize(
    "options", [{"cron": "* * *"}, {"time_zone": "Nowhere"}, {"name": ""}, {"catch_up": 1}, {"name": "a\0"}]
)
def test_what_means_nothing_is_refused(client: Client, options: dict[str, object]) -> None:
    given: dict[str, object] = {"name": "a", "cron": "* * * * *"} | options
    with pytest.raises(errors.InvalidArgumentError):
        client.schedules.create(given.pop("name"), "orders", given.pop("cron"), 1, **given)  # type: ignore[arg-type]
    assert client.schedules.list() == []


def test_unknown_schedule_is_said(client: Client) -> None:
    with pytest.raises(errors.NotFoundError):
        client.schedules.pause("nothing")
    assert client.schedules.delete("nothing") is False


def test_schedule_belongs_to_the_transaction(database: str, client: Client) -> None:
    with psycopg.Connection.connect(database) as connection:
        Client(connection=connection).schedules.create("a", "orders", "* * * * *", 1)
        connection.rollback()
    assert client.schedules.list() == []


def test_without_the_package_it_is_said_and_house_is_kept(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client.schedules.create("hourly", "orders", "0 * * * *", 1)
    let_pass(client, 1_200)
    monkeypatch.setitem(sys.modules, "cronsim", None)
    with pytest.raises(errors.ExtraNotInstalledError):
        client.schedules.create("other", "orders", "0 * * * *", 1)
    with caplog.at_level(logging.WARNING, logger="spanmq"):
        while client.admin.maintain():
            pass
        client.admin.maintain()
    assert (client.queues.metrics("orders")).length == 1
    assert [record.message.split()[0] for record in caplog.records] == ["schedule_not_planned"]
