"""The nouns `batch`, `task` and `result`: what tasks did, and what came of them."""

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from spanmq.cli.option import Limit, MessageIds, QueueName, SomeQueue
from spanmq.cli.output import fields
from spanmq.cli.verbs import Commands

if TYPE_CHECKING:
    from spanmq.client import Client
    from spanmq.model.message import Result

batch = Commands()
task = Commands()
result = Commands()

BATCH_COLUMNS: Final = (
    *("batch_id", "queue", "total", "unsettled", "done", "dead", "created_at", "ended_at", "message_id"),
    "body",
)
Seconds = Annotated[float, typer.Option(help="Period up to now, at most a day.")]


@batch.verb("list", columns=BATCH_COLUMNS, empty="no batches")
def list_batches(
    client: "Client",
    queue: SomeQueue = None,
    before: Annotated[int | None, typer.Option(help="Only batches with an id below this one.")] = None,
    limit: Limit = 100,
) -> Any:
    """List batches that send into a queue, the newest first; those that ended for seven days.

    $ spanmq batch list orders
    """
    return client.batches.list(queue, before=before, limit=limit)


@task.verb("list", empty="no worker has handled a task in this time")
def list_tasks(client: "Client", queue: SomeQueue = None, seconds: Seconds = 3600.0) -> Any:
    """List kinds of tasks: how many were done and failed, and the seconds that 50 and 95 of 100 took at most.

    $ spanmq task list orders --seconds 600
    """
    return client.health.task_kinds(queue, seconds=seconds)


@task.verb("statistics")
def task_statistics(
    client: "Client",
    queue: QueueName,
    kind: Annotated[str, typer.Argument(metavar="TASK", help="The kind of task.")],
    seconds: Seconds = 3600.0,
    step: Annotated[float, typer.Option(help="Seconds that a row covers, whole minutes.")] = 60.0,
) -> Any:
    """Show how often a task was done and failed, and how long it took, a row for each step, oldest first.

    $ spanmq task statistics orders ship --seconds 86400 --step 900
    """
    return client.health.task_statistics(queue, kind, seconds=seconds, step=step)


@task.verb("shapes", empty="no sender has noted a shape")
def task_shapes(client: "Client", queue: QueueName) -> Any:
    """List with which arguments messages for tasks were sent, as senders note it about every ten minutes.

    $ spanmq task shapes orders
    """
    return client.inspect.task_shapes(queue)


@result.verb("get", columns=("queue", "message_id", "state", "message_state", "value", "error"))
def get_results(client: "Client", queue: QueueName, message_ids: MessageIds) -> Any:
    """Show what became of messages: the stored result, the error of a dead letter, or that no result is kept.

    For a message without a result, `message_state` is the state of the message, such as processing.

    $ spanmq result get orders 17 18
    """
    results = client.results.list(queue, message_ids)
    return [{**fields(each), "message_state": _message_state(client, each)} for each in results]


def _message_state(client: "Client", result: "Result") -> str | None:
    return client.inspect.state(result.queue, result.message_id) if result.state == "missing" else None
