"""Runs of the pipeline's jobs: what is noted, who sees it, and what is forgotten."""

import pytest
from tests.sql.queue import Connection, sqlstate_of

from spanmq.client import Client
from spanmq.client._sync.admin import PipelineRuns
from spanmq.errors import InvalidArgumentError


@pytest.fixture
def runs(connection: Connection) -> PipelineRuns:
    """Runs in the test's transaction, with a queue `orders`."""
    client = Client(connection=connection)
    client.queues.create("orders")
    return client.admin.pipeline_runs


def test_run_is_told_from_its_begin_to_its_end(runs: PipelineRuns) -> None:
    run_id = runs.begin("export", "orders", target="/lake")
    [run] = runs.list()
    assert (run.run_id, run.job, run.queue) == (run_id, "export", "orders")
    assert (run.target, run.state) == ("/lake", "running")
    assert runs.note(run_id, done=5)
    assert runs.note(run_id)
    assert runs.end(run_id, report={"exported": 7})
    [run] = runs.list("orders")
    assert (run.state, run.done, run.report, run.error) == ("succeeded", 5, {"exported": 7}, None)
    assert run.ended_at is not None
    # What has ended stays as it is.
    assert not runs.note(run_id, done=9)
    assert not runs.end(run_id, error="late")
    assert runs.list()[0].state == "succeeded"


def test_failed_run_tells_why(runs: PipelineRuns) -> None:
    run_id = runs.begin("backfill")
    runs.end(run_id, error="x" * 5_000)
    [run] = runs.list()
    assert (run.state, run.queue, run.error) == ("failed", None, "x" * 2_000)


def test_run_that_is_not_heard_of_is_lost(runs: PipelineRuns, connection: Connection) -> None:
    run_id = runs.begin("export", "orders")
    connection.execute("update spanmq_core.pipeline_run set seen_at = seen_at - interval '3 minutes'")
    assert runs.list()[0].state == "lost"
    # It was only slow.
    runs.note(run_id)
    assert runs.list()[0].state == "running"


def test_pages_go_from_the_newest_on(runs: PipelineRuns) -> None:
    ids = [runs.begin("export", "orders") for _ in range(5)]
    first = runs.list(limit=2)
    assert [run.run_id for run in first] == ids[:-3:-1]
    second = runs.list("orders", before=first[-1].run_id, limit=2)
    assert [run.run_id for run in second] == ids[2:0:-1]


def test_thousand_runs_of_a_queue_are_kept(runs: PipelineRuns, connection: Connection) -> None:
    other = runs.begin("report")
    runs.begin("export", "orders")
    connection.execute(
        "insert into spanmq_core.pipeline_run (job, queue_id, begun_by) "
        "select 'export', queue_id, current_user from spanmq_core.queue, generate_series(1, 1005)"
    )
    newest = runs.begin("export", "orders")
    kept = runs.list("orders", limit=5_000)
    assert len(kept) == 1_000
    assert kept[0].run_id == newest
    assert runs.list(before=kept[-1].run_id)[0].run_id == other


@pytest.mark.parametrize("grant", ["grant_queue('looker', 'orders', 'look')", "grant_all('looker', 'look')"])
def test_role_ends_its_own_only(runs: PipelineRuns, connection: Connection, grant: str) -> None:
    mine = runs.begin("export", "orders")
    connection.execute(f"create role looker; select spanmq.{grant}; set local role looker".encode())
    assert [run.run_id for run in runs.list("orders")] == [mine]
    assert not runs.end(mine, error="no")
    forged = f"select spanmq_call.end_pipeline_run('orders', {mine}, null, 'not mine', gen_random_uuid())"
    assert sqlstate_of(connection, forged) == "42501"
    own = runs.begin("report", "orders")
    assert runs.end(own)


def test_proofs_that_no_function_took_are_forgotten(runs: PipelineRuns, connection: Connection) -> None:
    connection.execute("select spanmq_call.prove_caller()")
    connection.execute("select spanmq.maintain()")
    assert connection.execute("select count(*) from spanmq_call.caller").fetchone() == (0,)


def test_report_has_a_limit(runs: PipelineRuns) -> None:
    run_id = runs.begin("export", "orders")
    with pytest.raises(InvalidArgumentError, match="65,536 bytes"):
        runs.end(run_id, report={"a": "x" * 65_536})
