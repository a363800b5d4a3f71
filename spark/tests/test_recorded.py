"""Runs of jobs are noted, and a job does not care whether that works."""

import threading
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from tests.patience import WAIT_SECONDS

from spanmq.client import Client
from spanmq_spark.jobs import recorded as module
from spanmq_spark.jobs.recorded import recorded


@dataclass(frozen=True)
class Report:
    sent: int
    queue: str


def job(act: Any = lambda: None) -> Any:
    """Return a job that does what the test wants."""

    @recorded("fill", lambda given: given["source"])
    def fill(spark: object, dsn: str, queue: str, source: str, *, dry_run: bool = False) -> Report:
        act()
        return Report(3, queue)

    return fill


def test_run_is_noted_with_its_report(client: Client, database: str) -> None:
    seen: list[Any] = []
    fill = job(lambda: seen.extend(client.admin.pipeline_runs.list()))
    assert fill(None, database, "orders", "old.parquet") == Report(3, "orders")
    assert [(run.state, run.target) for run in seen] == [("running", "old.parquet")]
    [run] = client.admin.pipeline_runs.list()
    assert (run.job, run.queue, run.state, run.done) == ("fill", "orders", "succeeded", 3)
    assert run.report == {"sent": 3, "queue": "orders"}


def test_failed_run_is_noted_with_its_error(client: Client, database: str) -> None:
    def fail() -> None:
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        job(fail)(None, database, queue="orders", source="old.parquet")
    [run] = client.admin.pipeline_runs.list()
    assert (run.state, run.error) == ("failed", "OSError: no room")


def test_dry_run_is_not_noted(client: Client, database: str) -> None:
    job()(None, database, "orders", "old.parquet", dry_run=True)
    assert client.admin.pipeline_runs.list() == []


def test_several_queues_are_of_none(client: Client, database: str) -> None:
    job()(None, database, "ord*", "old.parquet")
    assert client.admin.pipeline_runs.list()[0].queue is None


def test_job_goes_on_where_nothing_can_be_noted(
    empty_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert job()(None, empty_database, "orders", "old.parquet").sent == 3
    assert "run_not_noted" in caplog.text


def test_run_is_heard_of_while_it_goes_on(
    client: Client, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "NOTE_SECONDS", 0.01)
    is_heard = threading.Event()

    def look() -> None:
        seen = set()
        with psycopg.connect(database, autocommit=True) as connection:
            while not is_heard.is_set():
                seen |= set(connection.execute("select seen_at from spanmq_core.pipeline_run").fetchall())
                if len(seen) > 1:
                    is_heard.set()

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    job(lambda: is_heard.wait(WAIT_SECONDS))(None, database, "orders", "old.parquet")
    assert is_heard.is_set()
    watcher.join(WAIT_SECONDS)
