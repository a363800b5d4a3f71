"""Recurring messages through the client, by itself, and on the command line."""

import json
import logging
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from typer.testing import CliRunner

from spanmq import errors
from spanmq.cli.app import app
from spanmq.client import Client


@pytest.fixture
def client(database: str) -> Iterator[Client]:
    with Client(database, maintain_interval=None) as opened:
        opened.create_queue("jobs")
        yield opened


def let_pass(client: Client, hours: int) -> None:
    """Let everything have happened so much earlier."""
    with client.transaction() as transaction:
        move = "set {0} = {0} - make_interval(hours => %s)"
        for table, column in (("schedule_time", "due_at"), ("schedule", "planned_until")):
            transaction.connection.execute(f"update spanmq.{table} {move.format(column)}", [hours])


def test_schedule_plans_its_times(client: Client) -> None:
    client.schedule("nightly", "jobs", "30 2 * * *", {"a": 1}, time_zone="Europe/Berlin", group="g")
    [schedule] = client.list_schedules()
    assert (schedule.name, schedule.queue, schedule.cron) == ("nightly", "jobs", "30 2 * * *")
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
    client.schedule("hourly", "jobs", f"{minute} * * * *", 1, catch_up=catch_up)
    # All that was planned is over, and 200 hours more.
    let_pass(client, 1_200)
    for _ in range(30):
        if not client.maintain(100) and client.list_schedules()[0].planned_until > datetime.now(UTC):
            break
    while client.maintain(100):
        pass
    sent = client.metrics("jobs").length
    # Without catching up: one for what was planned; what was not even planned is no time.
    assert sent == (1_200 if catch_up else 1)
    [schedule] = client.list_schedules()
    assert schedule.next_at is not None
    assert schedule.next_at > datetime.now(UTC) - timedelta(minutes=1)


def test_background_sends_at_the_time(database: str, client: Client) -> None:
    with Client(database, maintain_interval=0.05) as keeper:
        keeper.schedule("often", "jobs", "* * * * * *", 1)
        [message] = keeper.receive("jobs", wait=30)
    assert message.headers is not None
    late = message.enqueued_at - datetime.fromisoformat(message.headers["x-spanmq-scheduled-at"])
    assert timedelta() <= late < timedelta(seconds=20)


def test_idle_keeper_is_in_time_too(database: str, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pause of one that has been idle for long ends when the next time is due."""
    pauses: list[float] = []
    asked = threading.Event()
    wait = threading.Event.wait
    others = set(threading.enumerate())

    def watched(event: threading.Event, timeout: float | None = None) -> bool:
        thread = threading.current_thread()
        if thread.name == "spanmq maintenance" and thread not in others and timeout is not None:
            pauses.append(timeout)
            if len(pauses) > 1:
                asked.set()
                return wait(event, 60)
        return wait(event, timeout)

    client.schedule("often", "jobs", "0 * * * * *", 1)
    monkeypatch.setattr(threading.Event, "wait", watched)
    with Client(database, maintain_interval=0.01) as keeper:
        keeper.open()
        monkeypatch.setattr("spanmq.maintenance.IDLE_FACTOR", 1_000_000)
        assert wait(asked, 30)
        # Doubled from 0.01, and never longer than until the next minute.
        assert max(pauses) <= 60


@pytest.mark.parametrize(
    "options", [{"cron": "* * *"}, {"time_zone": "Nowhere"}, {"name": ""}, {"catch_up": 1}, {"name": "a\0"}]
)
def test_what_means_nothing_is_refused(client: Client, options: dict[str, object]) -> None:
    given: dict[str, object] = {"name": "a", "cron": "* * * * *"} | options
    with pytest.raises(errors.InvalidArgumentError):
        client.schedule(given.pop("name"), "jobs", given.pop("cron"), 1, **given)  # type: ignore[arg-type]
    assert client.list_schedules() == []


def test_unknown_schedule_is_said(client: Client) -> None:
    with pytest.raises(errors.ScheduleNotFoundError):
        client.pause_schedule("nothing")
    assert client.unschedule("nothing") is False


def test_schedule_belongs_to_the_transaction(database: str, client: Client) -> None:
    with psycopg.connect(database) as connection:
        Client(connection=connection).schedule("a", "jobs", "* * * * *", 1)
        connection.rollback()
    assert client.list_schedules() == []


def test_without_the_package_it_is_said_and_house_is_kept(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client.schedule("hourly", "jobs", "0 * * * *", 1)
    let_pass(client, 1_200)
    monkeypatch.setitem(sys.modules, "cronsim", None)
    with pytest.raises(errors.CronNotAvailableError):
        client.schedule("other", "jobs", "0 * * * *", 1)
    with caplog.at_level(logging.WARNING, logger="spanmq"):
        while client.maintain():
            pass
        client.maintain()
    assert client.metrics("jobs").length == 1
    assert [record.message.split()[0] for record in caplog.records] == ["schedule_not_planned"]


def test_command_line(client: Client, database: str) -> None:
    def run(*arguments: str, code: int = 0) -> list[dict[str, object]]:
        result = CliRunner().invoke(app, [*arguments, "--dsn", database, "--json"])
        assert result.exit_code == code, result.output
        return [json.loads(line) for line in result.stdout.splitlines()]

    options = "--time-zone", "Europe/Berlin", "--catch-up", "--headers", '{"b": 2}'
    run("schedule", "nightly", "jobs", "0 3 * * *", '{"a": 1}', *options)
    [shown] = run("list-schedules")
    assert (shown["name"], shown["body"], shown["headers"]) == ("nightly", {"a": 1}, {"b": 2})
    run("pause-schedule", "nightly")
    assert client.list_schedules()[0].is_paused
    run("resume-schedule", "nightly")
    assert not client.list_schedules()[0].is_paused
    assert run("unschedule", "nightly") == [{"name": "nightly", "existed": True}]
    run("schedule", "nightly", "jobs", "nonsense", "1", code=1)
    run("schedule", "nightly", "jobs", "0 3 * * *", "{", code=2)
