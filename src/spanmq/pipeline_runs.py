# Generated from src/spanmq/pipeline_runs_async.py by tools/generate_sync.py: change that file.

"""What a client knows of the pipeline's jobs; a part of Client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spanmq import pipeline_run_calls
from spanmq.body import Codec
from spanmq.link import Link
from spanmq.message import PipelineRun


class PipelineRuns:
    """Runs of jobs: exports, backfills and the like note themselves."""

    _link: Link

    def begin_pipeline_run(self, job: str, queue: str | None = None, *, target: str | None = None) -> int:
        """Note that a job begins, on a queue or on several; give the run's number.

        `target` says where it writes to, or reads from. Of a queue the newest thousand are kept.
        """
        return self._link.run(pipeline_run_calls.begin_pipeline_run(job, queue, target))

    def note_pipeline_run(self, run_id: int, *, done: int | None = None) -> bool:
        """Note that a run goes on, and how many messages it has done; every two minutes, or it is "lost".

        False: there is no such run of this role's, or it has ended.
        """
        return self._link.run(pipeline_run_calls.note_pipeline_run(run_id, done))

    def end_pipeline_run(
        self, run_id: int, *, report: Mapping[str, Any] | None = None, error: str | None = None
    ) -> bool:
        """Note that a run has ended, with its report, or with the error that ended it.

        False: there is no such run of this role's, or it has ended.
        """
        encoded = None if report is None else Codec().encode(dict(report))
        return self._link.run(pipeline_run_calls.end_pipeline_run(run_id, encoded, error))

    def list_pipeline_runs(
        self, queue: str | None = None, *, before: int | None = None, quantity: int = 100
    ) -> list[PipelineRun]:
        """List the runs of a queue's jobs, or of all, the newest first; `before` is a run's number."""
        return self._link.run(pipeline_run_calls.list_pipeline_runs(queue, before, quantity))
