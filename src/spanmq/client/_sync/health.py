# Generated from src/spanmq/client/_async/health.py by tools/generate_sync.py: change that file.

"""The state of queues and of the server: `client.health`."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from spanmq.client import argument, functions
from spanmq.client.argument import Seconds, optional
from spanmq.client.call import SqlCall, optional_queue_call, queue_call
from spanmq.client.rows import listed, worker_reports
from spanmq.model import (
    Attention,
    Finding,
    LatestStatistics,
    QueueHealth,
    Sample,
    StatisticsStep,
    TaskKind,
    TaskStep,
    WorkerReport,
)

if TYPE_CHECKING:
    from spanmq.client._sync.connection import Link


class Health:
    """Calls about all queues, their statistics, and the server."""

    def __init__(self, link: "Link") -> None:
        self._link = link

    def now(self, queues: Iterable[str] | None = None) -> list[QueueHealth]:
        """Return the health of each of these `queues` (None: all) that you may look into.

        Costs what their runs cost. Queues that do not exist are left out. Raises InvalidArgumentError for one name in
        place of a list.
        """
        arguments = functions.queue_names("queues", queues)
        return self._link.run(optional_queue_call(None, "health", listed(QueueHealth), *arguments))

    def statistics(self, queue: str, *, seconds: Seconds = 3600.0) -> list[Sample]:
        """Return the statistics of a `queue`, a row a minute, the oldest first, as maintenance sampled them.

        They are those of the last `seconds`. Empty where nothing runs maintenance, which keeps the samples for three
        days. Raises InvalidArgumentError unless `seconds` is more than 0, and QueueNotFoundError.
        """
        arguments = (argument.seconds("seconds", seconds),)
        return self._link.run(queue_call(queue, "statistics", listed(Sample), *arguments))

    def latest(self, queues: Iterable[str] | None = None) -> list[LatestStatistics]:
        """Return the last sample of each queue, which costs the same however many messages wait.

        Of these `queues` (None: all that you may look into) those that do not exist are left out. Raises
        InvalidArgumentError for one name in place of a list. `now` reads every run, and is exact.
        """
        arguments = functions.queue_names("queues", queues)
        return self._link.run(
            optional_queue_call(None, "latest_statistics", listed(LatestStatistics), *arguments)
        )

    def attention(self, queues: Iterable[str] | None = None) -> list[Attention]:
        """Return why queues need an operator's attention: of these `queues`, or (None) of all that you may look into.

        A queue without a reason has no row; the reasons of a queue come in the order of their urgency. Costs the same
        however many messages wait. Queues that do not exist are left out. Raises InvalidArgumentError for one name in
        place of a list.
        """
        arguments = functions.queue_names("queues", queues)
        return self._link.run(optional_queue_call(None, "attention", listed(Attention), *arguments))

    def total(
        self, queues: Iterable[str] | None = None, *, seconds: Seconds = 3600.0, step: Seconds = 60.0
    ) -> list[StatisticsStep]:
        """Return sums of the statistics of queues, in steps, the oldest first, until a minute ago.

        They are about these `queues` (None: all) together, in the last `seconds`; each row is about `step` seconds.
        Raises InvalidArgumentError for seconds that are not valid.
        """
        arguments = (
            *functions.queue_names("queues", queues),
            argument.seconds("seconds", seconds),
            argument.seconds("step", step),
        )
        return self._link.run(optional_queue_call(None, "sum_statistics", listed(StatisticsStep), *arguments))

    def workers(self, queue: str | None = None) -> list[WorkerReport]:
        """List the workers that run: what they hold, how far their handlers are, and which take unusually long.

        They have reported within a minute. There is a row for each of a worker's queues, or only for one `queue`.
        Raises InvalidArgumentError for a name that is not a string. [] for a queue that does not exist. A handler
        reports its progress by `spanmq.progress`.
        """
        arguments = optional(argument.texts, "queues", None if queue is None else [queue])
        reports = self._link.run(SqlCall("list_workers", arguments, worker_reports, queue, native=True))
        return sorted(reports, key=lambda report: (report.worker, report.queue))

    def task_kinds(self, queue: str | None = None, *, seconds: Seconds = 3600.0) -> list[TaskKind]:
        """List kinds of tasks: how many were done and failed, and the seconds that 50 and 95 of 100 took at most.

        Workers handled them in the last `seconds`, up to a day, for one `queue` or (None) all. Raises
        InvalidArgumentError for seconds out of range.
        """
        arguments = (
            argument.seconds("seconds", seconds),
            *optional(argument.texts, "queues", None if queue is None else [queue]),
        )
        kinds = self._link.run(SqlCall("list_task_kinds", arguments, listed(TaskKind), queue, native=True))
        return sorted(kinds, key=lambda kind: (kind.queue, kind.kind))

    def task_statistics(
        self, queue: str, kind: str, *, seconds: Seconds = 3600.0, step: Seconds = 60.0
    ) -> list[TaskStep]:
        """Return how often a task was done and failed, and how long it took, a row for each step, the oldest first.

        The tasks are of a `kind` in a `queue`, in the last `seconds`, up to a day. Each row is `step` seconds, which
        are whole minutes; the last one ended a minute ago or earlier. Raises InvalidArgumentError for seconds out of
        range, and QueueNotFoundError.
        """
        arguments = (
            argument.text("kind", kind),
            argument.seconds("seconds", seconds),
            argument.seconds("step", step),
        )
        return self._link.run(queue_call(queue, "task_statistics", listed(TaskStep), *arguments))

    def doctor(self, *, connections: int | None = None) -> list[Finding]:
        """Check whether the server is fit for its job, and return what to do.

        `connections` is how many all pools that run may open together. Raises MissingPrivilegeError without
        membership in pg_read_all_stats, InvalidArgumentError for connections below 1.
        """
        arguments = (
            argument.moment("client_at", datetime.now(UTC)),
            *optional(argument.integer, "connections", connections),
        )
        return self._link.run(
            optional_queue_call(None, "doctor", listed(Finding, check="check_name"), *arguments)
        )
