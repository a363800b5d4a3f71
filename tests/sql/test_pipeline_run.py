"""Runs of the pipeline's jobs: what is noted, who sees it, and what is forgotten."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg import Connection

from spanmq.client import Client
from spanmq.errors import InvalidArgumentError, QueueNotFoundError


@pytest.fixture
def client(connection: Connection[Any]) -> Client:
    """A client in the test's transaction, with a queue `orders`."""
    client = Client(connection=connection)
    client.queues.create("orders")
    return client


def test_run_is_told_from_its_begin_to_its_end(client: Client) -> None:
    run_id = client.admin.pipeline_runs.begin("export", "orders", target="/lake")
    [run] = client.admin.pipeline_runs.list()
    assert (run.run_id, run.job, run.queue, run.target, run.state) == (
        run_id,
        "export",
        "orders",
        "/lake",
        "running",
    )
    assert client.admin.pipeline_runs.note(run_id, done=5)
    assert client.admin.pipeline_runs.note(run_id)
    assert client.admin.pipeline_runs.end(run_id, report={"exported": 7})
    [run] = client.admin.pipeline_runs.list("orders")
    assert (run.state, run.done, run.report, run.error) == ("succeeded", 5, {"exported": 7}, None)
    assert run.ended_at is not None
    # What has ended stays as it is.
    assert not client.admin.pipeline_runs.note(run_id, done=9)
    assert not client.admin.pipeline_runs.end(run_id, error="late")
    assert client.admin.pipeline_runs.list()[0].state == "succeeded"


def test_failed_run_tells_why(client: Client) -> None:
    run_id = client.admin.pipeline_runs.begin("backfill")
    client.admin.pipeline_runs.end(run_id, error="x" * 5_000)
    [run] = client.admin.pipeline_runs.list()
    assert (run.state, run.queue, run.error) == ("failed", None, "x" * 2_000)


def test_run_that_is_not_heard_of_is_lost(client: Client, connection: Connection[Any]) -> None:
    run_id = client.admin.pipeline_runs.begin("export", "orders")
    connection.execute("update spanmq_core.pipeline_run set seen_at = seen_at - interval '3 minutes'")
    assert client.admin.pipeline_runs.list()[0].state == "lost"
    # It was only slow.
    client.admin.pipeline_runs.note(run_id)
    assert client.admin.pipeline_runs.list()[0].state == "running"


def test_pages_go_from_the_newest_on(client: Client) -> None:
    ids = [client.admin.pipeline_runs.begin("export", "orders") for _ in range(5)]
    first = client.admin.pipeline_runs.list(limit=2)
    assert [run.run_id for run in first] == ids[:-3:-1]
    second = client.admin.pipeline_runs.list("orders", before=first[-1].run_id, limit=2)
    assert [run.run_id for run in second] == ids[2:0:-1]


def test_thousand_runs_of_a_queue_are_kept(client: Client, connection: Connection[Any]) -> None:
    other = client.admin.pipeline_runs.begin("report")
    client.admin.pipeline_runs.begin("export", "orders")
    connection.execute(
        "insert into spanmq_core.pipeline_run (job, queue_id, begun_by) "
        "select 'export', queue_id, current_user from spanmq_core.queue, generate_series(1, 1005)"
    )
    newest = client.admin.pipeline_runs.begin("export", "orders")
    kept = client.admin.pipeline_runs.list("orders", limit=5_000)
    assert len(kept) == 1_000
    assert kept[0].run_id == newest
    assert client.admin.pipeline_runs.list(before=kept[-1].run_id)[0].run_id == other


@pytest.mark.parametrize("job", ["", "x" * 101])
def test_name_that_is_none_is_refused(client: Client, job: str) -> None:
    with pytest.raises(InvalidArgumentError):
        client.admin.pipeline_runs.begin(job)


def test_bad_quantity_and_unknown_queue_are_refused(client: Client, connection: Connection[Any]) -> None:
    with pytest.raises(InvalidArgumentError), connection.transaction():
        client.admin.pipeline_runs.list(limit=0)
    with pytest.raises(QueueNotFoundError), connection.transaction():
        client.admin.pipeline_runs.begin("export", "none")
    with pytest.raises(QueueNotFoundError), connection.transaction():
        client.admin.pipeline_runs.list("none")


def test_runs_go_with_their_queue(client: Client) -> None:
    client.admin.pipeline_runs.begin("export", "orders")
    client.queues.drop("orders")
    assert client.admin.pipeline_runs.list() == []


def test_role_ends_its_own_only(client: Client, connection: Connection[Any]) -> None:
    mine = client.admin.pipeline_runs.begin("export", "orders")
    connection.execute("create role spanmq_test_looker")
    connection.execute("select spanmq.grant_queue('spanmq_test_looker', 'orders', 'look')")
    connection.execute("set local role spanmq_test_looker")
    assert [run.run_id for run in client.admin.pipeline_runs.list("orders")] == [mine]
    assert not client.admin.pipeline_runs.end(mine, error="no")
    own = client.admin.pipeline_runs.begin("report", "orders")
    assert client.admin.pipeline_runs.end(own)
