"""The pages of what was done: runs of jobs, batches, and changes."""

import re
from pathlib import Path

import pytest
from service.tests.dashboard import scene
from service.tests.dashboard.conftest import Person, rows, signed_in
from service.tests.running import token
from tests.cli.program import wait_until

from spanmq.client import Client


@pytest.fixture
def worked(filled: str) -> str:
    with Client(filled) as client:
        client.admin.pipeline_runs.begin("migrate", "mail", target="amqp")
        done = client.admin.pipeline_runs.begin("export", "orders", target="/lake")
        client.admin.pipeline_runs.note(done, done=1234)
        client.admin.pipeline_runs.end(done, report={"exported": 1234})
        failed = client.admin.pipeline_runs.begin("backfill", scene.HOSTILE_QUEUE, target=scene.HOSTILE)
        client.admin.pipeline_runs.end(failed, error=scene.HOSTILE)
        client.admin.pipeline_runs.begin("dead_letters", target="redrive")
    old = "update spanmq_core.pipeline_run set seen_at = seen_at - interval '1 hour' where run_id = 1 returning 1"
    rows(filled, old)
    return filled


def test_runs_are_shown_the_newest_first(keeper: Person, worked: str) -> None:
    text = keeper.get("/pipeline-runs").text
    assert re.findall(r'rowheader">(\d+)<', text) == ["4", "3", "2", "1"]
    assert re.findall(r'badge[^"]*">(\w+)<', text) == ["running", "failed", "succeeded", "lost"]
    assert "1,234" in text
    assert "<script>alert" not in text
    assert re.findall(r'rowheader">(\d+)<', keeper.get("/queue/pipeline-runs", queue="orders").text) == ["2"]


def test_older_runs_are_on_further_pages(keeper: Person, worked: str) -> None:
    rows(
        worked,
        "insert into spanmq_core.pipeline_run (job, queue_id, begun_by) select 'export', queue_id, current_user "
        "from spanmq_core.queue, generate_series(1, 60) where name = 'orders' returning 1",
    )
    first = keeper.get("/pipeline-runs").text
    found = re.findall(r'rowheader">(\d+)<', first)
    assert len(found) == 50
    assert f"before={found[-1]}" in first
    second = re.findall(r'rowheader">(\d+)<', keeper.get("/pipeline-runs", before=found[-1]).text)
    assert [int(each) for each in found + second] == list(range(64, 0, -1))


def test_token_sees_runs_of_its_queues_only(worked: str, tmp_path: Path) -> None:
    with signed_in(worked, token(worked, "mine", queues="orders", verbs="look"), tmp_path) as someone:
        assert re.findall(r'rowheader">(\d+)<', someone.get("/pipeline-runs").text) == ["2"]
        assert someone.get("/queue/pipeline-runs", queue="mail").status_code == 403


def test_batches_are_shown_with_their_counts(keeper: Person, filled: str) -> None:
    with Client(filled) as client:
        ids = client.send_batch("invoices", [1, 2])
        first = client.batches.create("orders", {"report": 1}, {"invoices": ids})
        client.delete("invoices", ids[0])
        second = client.batches.create("mail", {"report": 2}, {"invoices": ids[:1]})

        def has_ended() -> bool:
            client.admin.maintain()
            return client.batches.list()[0].ended_at is not None

        # The service's housekeeping may be at it at this moment: then this one does nothing.
        wait_until(has_ended)
    text = keeper.get("/batches").text
    assert re.findall(r'rowheader">(\d+)<', text)[:2] == [str(second), str(first)]
    counts = re.findall(r'data-label="(?:Messages|Not settled|Done|Dead)">([^<]+)<', text)
    assert counts[:6] == ["1", "0", "1", "0", "2", "1"]
    assert str(second) not in re.findall(r'rowheader">(\d+)<', keeper.get("/batches", before=second).text)


def test_changes_by_pages_and_service_are_shown(keeper: Person, filled: str) -> None:
    keeper.post("/queue/pause?queue=orders", "/queue?queue=orders")
    done = keeper.http.post("/v1/queues/orders/resume", headers={"accept": "application/json"})
    assert done.status_code == 200, done.text
    found = rows(filled, "select action, actor from spanmq.list_changes('orders') limit 2")
    assert found == [("resume", "service"), ("pause", "dashboard")]
    for path in ("/changes", "/queue/changes?queue=orders"):
        page = keeper.get(path).text
        assert ">pause</code>" in page
        assert ">dashboard<" in page
