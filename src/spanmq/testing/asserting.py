"""Assertions about messages: that one is delivered now, and that one of an earlier version would run."""

from typing import Any

from spanmq.client import Client
from spanmq.tasks import Tasks
from spanmq.tasks.check import fit_of


def assert_visible(client: Client, queue: str, message_id: int) -> None:
    """Assert that receives of this moment return the message of a `queue` with this `message_id`, through a `client`.

    Raises AssertionError with what it waits for, and QueueNotFoundError.
    """
    reasons = client.inspect.explain(queue, message_id)
    if not any(reason.code == "visible" for reason in reasons):
        sentences = " ".join(reason.sentence for reason in reasons)
        raise AssertionError(f"message {message_id} of {queue} is not delivered: {sentences}")


def assert_runs(tasks: Tasks, body: Any, queue: str | None = None) -> None:
    """Assert that a worker of `tasks` could run a message with this `body` in a `queue` (None: that of the tasks).

    Raises AssertionError with what does not fit.
    """
    fit = fit_of(tasks.catalog, queue or tasks.name, body)
    if fit.verdict == "fails":
        raise AssertionError(f"no task could run {body!r}: {fit.task or 'it'} has {fit.reason}")
