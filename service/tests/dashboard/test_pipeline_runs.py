"""The pages of what jobs did."""

import re
from pathlib import Path

import pytest
from service.tests.dashboard import scene
from service.tests.dashboard.conftest import Person, rows, signed_in
from service.tests.running import token

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
