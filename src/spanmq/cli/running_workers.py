"""The workers that run: what they hold, where their handlers are, and how to stop one."""

from dataclasses import asdict
from time import monotonic, sleep
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from spanmq.cli.option import SomeQueue, WorkerName
from spanmq.errors import NotFoundError

if TYPE_CHECKING:
    from spanmq.client import Client
    from spanmq.model import RunningHandler

STACK_COLUMNS: Final = ("queue", "message_id", "task", "seconds", "stack")
# How often an answer of a worker is looked for before it is asked again.
ANSWER_LOOKS: Final = 25
ANSWER_LOOK_SECONDS: Final = 0.2


def worker_stack(
    client: "Client",
    worker: WorkerName,
    queue: SomeQueue = None,
    seconds: Annotated[float, typer.Option(help="Time to wait for the worker's answer.")] = 30.0,
) -> Any:
    """Show where the handlers of a worker are: the stack of the thread or coroutine of each, the longest first.

    For a role that may manage the queue. The worker answers at once, or within 20 seconds without notifications.
    `spanmq worker stack` is the same command.

    $ spanmq queue worker-stack web1:917:3f2a01
    """
    listed = [report.queue for report in client.health.workers(queue) if report.worker == worker]
    if not listed:
        raise NotFoundError(f"no worker {worker!r} is running", code="worker_not_found")
    until = monotonic() + seconds
    stacks: dict[str, list[RunningHandler]] = {}
    while len(stacks) < len(listed):
        missing = [name for name in listed if name not in stacks]
        for name in missing:
            client.admin.ask_stacks(name, worker)
        for _ in range(ANSWER_LOOKS):
            sleep(ANSWER_LOOK_SECONDS)
            handlers = {name: client.admin.get_stacks(name, worker) for name in missing}
            stacks |= {name: answer for name, answer in handlers.items() if answer is not None}
            if len(stacks) == len(listed):
                break
            if monotonic() > until:
                raise NotFoundError(f"worker {worker!r} has not answered", code="worker_not_found")
    return [
        {"queue": name, **asdict(handler)}
        for name, handlers in sorted(stacks.items())
        for handler in handlers
    ]
