"""Recurring messages on the command line."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from spanmq.cli.app import app
from spanmq.client import Client


def test_schedule_is_created_listed_paused_resumed_and_removed(client: Client, database: str) -> None:
    def run(*arguments: str, code: int = 0) -> list[dict[str, object]]:
        result = CliRunner().invoke(app, [*arguments, "--dsn", database, "--json"])
        assert result.exit_code == code, result.output
        return [json.loads(line) for line in result.stdout.splitlines()]

    options = "--time-zone", "Europe/Berlin", "--catch-up", "--headers", '{"b": 2}'
    run("schedule", "nightly", "orders", "0 3 * * *", '{"a": 1}', *options)
    [shown] = run("list-schedules")
    assert (shown["name"], shown["body"], shown["headers"]) == ("nightly", {"a": 1}, {"b": 2})
    run("pause-schedule", "nightly")
    assert client.list_schedules()[0].is_paused
    run("resume-schedule", "nightly")
    assert not client.list_schedules()[0].is_paused
    assert run("unschedule", "nightly") == [{"name": "nightly", "existed": True}]
    run("schedule", "nightly", "orders", "nonsense", "1", code=1)
    run("schedule", "nightly", "orders", "0 3 * * *", "{", code=2)
