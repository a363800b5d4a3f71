"""Runs of jobs, recorded in the database for display: a job continues if that fails."""

import functools
import inspect
import json
import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Final, ParamSpec, TypeVar

from spanmq.client import Client
from spanmq.errors import SpanmqError

logger = logging.getLogger("spanmq.pipeline")

# A run that is not heard of for two minutes is lost.
NOTE_SECONDS: Final = 30.0
# The count in a report, by the job's own name for it.
DONE: Final = ("exported", "sent", "done")

Arguments = Mapping[str, Any]
Parameters = ParamSpec("Parameters")
Report = TypeVar("Report")


def recorded(
    job: str, target: Callable[[Arguments], object], *, when: Callable[[Arguments], bool] = lambda _: True
) -> Callable[[Callable[Parameters, Report]], Callable[Parameters, Report]]:
    """Record each run of a job that has parameters `dsn` and `queue`, and perhaps `dry_run`, except dry runs.

    `target` returns the destination or source of its data from the arguments, `when` whether the run does
    anything.
    """

    def decorate(function: Callable[Parameters, Report]) -> Callable[Parameters, Report]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def run(*arguments: Parameters.args, **named: Parameters.kwargs) -> Report:
            bound = signature.bind(*arguments, **named)
            bound.apply_defaults()
            values = bound.arguments
            if values.get("dry_run") or not when(values):
                return function(*arguments, **named)
            note = _Note(values["dsn"], job, values["queue"], str(target(values)))
            try:
                report = function(*arguments, **named)
            except BaseException as error:
                note.end(error=f"{type(error).__name__}: {error}")
                raise
            note.end(report=report)
            return report

        return run

    return decorate


class _Note:
    """The record of one run, kept fresh by a thread."""

    def __init__(self, dsn: str, job: str, queue: object, target: str) -> None:
        self._ended = threading.Event()
        self._client = Client(dsn, listen=False, pool_size=1)
        self._run_id: int | None = None
        # A pattern, or a list, is several.
        of = queue if isinstance(queue, str) and not set(queue) & set("*?[,") else None
        self._run_id = self._say(lambda: self._client.admin.pipeline_runs.begin(job, of, target=target[:500]))
        self._thread = threading.Thread(target=self._keep, name="spanmq pipeline run", daemon=True)
        self._thread.start()

    def end(self, *, report: Any = None, error: str | None = None) -> None:
        """Record the end of the run."""
        self._ended.set()
        self._thread.join()
        run_id = self._run_id
        if run_id is not None:
            told = None if report is None else json.loads(json.dumps(asdict(report), default=str))
            done = None if told is None else next((told[name] for name in DONE if name in told), None)
            if done is not None:
                self._say(lambda: self._client.admin.pipeline_runs.note(run_id, done=done))
            self._say(lambda: self._client.admin.pipeline_runs.end(run_id, report=told, error=error))
        with suppress(SpanmqError):
            self._client.close()

    def _keep(self) -> None:
        run_id = self._run_id
        while run_id is not None and not self._ended.wait(NOTE_SECONDS):
            self._say(lambda: self._client.admin.pipeline_runs.note(run_id))

    def _say(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except SpanmqError as error:
            logger.warning("run_not_noted error=%s", error)
            return None
