"""The SQL functions for runs of the pipeline's jobs: arguments, and what becomes of rows. No I/O here."""

from __future__ import annotations

import json
from dataclasses import fields
from functools import partial
from typing import Any

from spanmq import call as argument
from spanmq.call import Call, flag, number, records
from spanmq.message import PipelineRun


def begin_pipeline_run(job: str, queue: str | None, target: str | None) -> Call[int]:
    """Note that a job begins."""
    arguments = [argument.text("job", job)]
    if queue is not None:
        arguments.append(argument.queue_name("queue", queue))
    if target is not None:
        arguments.append(argument.text("target", target))
    return Call("begin_pipeline_run", tuple(arguments), number, queue, native=True)


def note_pipeline_run(run_id: int, done: int | None) -> Call[bool]:
    """Note that it goes on."""
    arguments = [argument.bigint("run_id", run_id)]
    if done is not None:
        arguments.append(argument.bigint("done", done))
    return Call("note_pipeline_run", tuple(arguments), flag, native=True)


def end_pipeline_run(run_id: int, report: str | None, error: str | None) -> Call[bool]:
    """Note that it has ended; the report is JSON text."""
    arguments = (
        argument.bigint("run_id", run_id),
        argument.json("report", report),
        argument.text("error", error),
    )
    return Call("end_pipeline_run", arguments, flag, native=True)


def list_pipeline_runs(queue: str | None, before: int | None, quantity: int) -> Call[list[PipelineRun]]:
    """List runs."""
    arguments = [argument.integer("qty", quantity)]
    if queue is not None:
        arguments.append(argument.queue_name("queue", queue))
    if before is not None:
        arguments.append(argument.bigint("before", before))
    return Call("list_pipeline_runs", tuple(arguments), partial(records, _run), queue, native=True)


def _run(row: dict[str, Any]) -> PipelineRun:
    # As bytes by psycopg, as a value where a whole row came as JSON.
    raw = row["report"]
    report = json.loads(raw) if isinstance(raw, bytes | str) else raw
    given = {field.name: row.get(field.name) for field in fields(PipelineRun)}
    return PipelineRun(**{**given, "queue": row["queue_name"], "report": report})
