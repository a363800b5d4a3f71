"""Failures and leases: nack, reject, release, extend, hold; the state of a message; pausing a queue."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from spanmq.cli.connect import client
from spanmq.cli.option import AsJson, Dsn, MessageIds, QueueName, ids_of
from spanmq.cli.output import Output
from spanmq.cli.settling import received
from spanmq.client import Client
from spanmq.message import Settled

commands = typer.Typer()

LeaseId = Annotated[
    int, typer.Argument(metavar="LEASE_ID", help="As receive printed it.", show_default=False)
]
MessageId = Annotated[int, typer.Argument(metavar="ID", help="The message.", show_default=False)]
ErrorText = Annotated[str | None, typer.Option("--error", help="What went wrong.", show_default=False)]
Category = Annotated[
    str | None,
    typer.Option(help="TRANSIENT, DEPENDENCY, PERMANENT, BUSINESS or UNKNOWN.", show_default=False),
]
RetryIn = Annotated[
    float | None, typer.Option(help="Seconds; without it the backoff of the policy.", show_default=False)
]
ErrorClass = Annotated[str | None, typer.Option(help="Such as ValueError.", show_default=False)]
Traceback = Annotated[str | None, typer.Option(help="Where it went wrong.", show_default=False)]
Worker = Annotated[str | None, typer.Option(help="Who handled them.", show_default=False)]


@commands.command()
def nack(
    error: ErrorText = None,
    category: Category = None,
    retry_in: RetryIn = None,
    error_class: ErrorClass = None,
    traceback: Traceback = None,
    worker: Worker = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Give the messages of stdin back with a failure: each is "retrying", "dead" or "stale"."""
    reason = _reason(error, category, error_class, traceback, worker)
    _settle_received(
        dsn,
        as_json,
        lambda opened, queue, lease_id, ids: opened.nack_lease(
            queue, lease_id, ids, retry_in=retry_in, **reason
        ),
    )


@commands.command()
def nack_lease(
    queue: QueueName,
    lease_id: LeaseId,
    message_ids: MessageIds,
    error: ErrorText = None,
    category: Category = None,
    retry_in: RetryIn = None,
    error_class: ErrorClass = None,
    traceback: Traceback = None,
    worker: Worker = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Give messages back with a failure, by the lease that they were received under."""
    output = Output(as_json=as_json)
    ids, reason = ids_of(message_ids), _reason(error, category, error_class, traceback, worker)
    with client(dsn) as opened:
        output.records(opened.nack_lease(queue, lease_id, ids, retry_in=retry_in, **reason))


@commands.command()
def reject(
    error: ErrorText = None,
    category: Category = None,
    error_class: ErrorClass = None,
    traceback: Traceback = None,
    worker: Worker = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Give the messages of stdin up: each is "dead" or "stale"."""
    reason = _reason(error, category, error_class, traceback, worker)
    _settle_received(
        dsn,
        as_json,
        lambda opened, queue, lease_id, ids: opened.reject_lease(queue, lease_id, ids, **reason),
    )


@commands.command()
def reject_lease(
    queue: QueueName,
    lease_id: LeaseId,
    message_ids: MessageIds,
    error: ErrorText = None,
    category: Category = None,
    error_class: ErrorClass = None,
    traceback: Traceback = None,
    worker: Worker = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Give messages up, by the lease that they were received under."""
    output = Output(as_json=as_json)
    ids, reason = ids_of(message_ids), _reason(error, category, error_class, traceback, worker)
    with client(dsn) as opened:
        output.records(opened.reject_lease(queue, lease_id, ids, **reason))


@commands.command()
def release(dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Give the messages of stdin back unhandled; this delivery does not count as an attempt."""
    _settle_received(dsn, as_json, Client.release_lease)


@commands.command()
def release_lease(
    queue: QueueName, lease_id: LeaseId, message_ids: MessageIds, dsn: Dsn = None, as_json: AsJson = False
) -> None:
    """Give messages back unhandled, by the lease that they were received under."""
    output = Output(as_json=as_json)
    ids = ids_of(message_ids)
    with client(dsn) as opened:
        output.records(opened.release_lease(queue, lease_id, ids))


@commands.command()
def extend(
    queue: QueueName,
    lease_id: LeaseId,
    seconds: Annotated[float, typer.Argument(metavar="SECONDS", help="From now on.", show_default=False)],
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Hold a lease longer, and print how many messages it holds; 0: it is stale."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        output.records([{"held": opened.extend(queue, lease_id, seconds)}])


@commands.command()
def hold(
    queue: QueueName,
    lease_id: LeaseId,
    message_ids: MessageIds,
    seconds: Annotated[float, typer.Option(help="From now on.", show_default=False)],
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Hold messages of a lease longer, or shorter; the others of the lease stay as they were."""
    output = Output(as_json=as_json)
    ids = ids_of(message_ids)
    with client(dsn) as opened:
        output.records(opened.hold(queue, lease_id, ids, seconds))


@commands.command()
def pause(queue: QueueName, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Let receivers get nothing; senders go on."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        opened.pause(queue)
    output.done(f"receivers get no messages of {queue} until it is resumed", queue=queue, is_paused=True)


@commands.command()
def resume(queue: QueueName, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Let receivers get messages again."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        opened.resume(queue)
    output.done(f"receivers get messages of {queue} again", queue=queue, is_paused=False)


@commands.command()
def status(queue: QueueName, message_id: MessageId, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Show the state of a message: pending, processing, delayed, failed, dead, completed or unknown."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        output.records([{"message_id": message_id, "status": opened.status(queue, message_id)}])


@commands.command()
def failures(queue: QueueName, message_id: MessageId, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Show what went wrong with a message, the first failure first."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        output.records(opened.failures(queue, message_id), empty="it never failed")


def _reason(
    error: str | None,
    category: str | None,
    error_class: str | None,
    traceback: str | None,
    worker: str | None,
) -> dict[str, Any]:
    return {
        "error": error,
        "category": category,
        "error_class": error_class,
        "traceback": traceback,
        "worker": worker,
    }


def _settle_received(
    dsn: str | None, as_json: bool, settle: Callable[[Client, str, int, list[int]], list[Settled]]
) -> None:
    output = Output(as_json=as_json)
    settled: list[Settled] = []
    leases = received()
    with client(dsn) as opened, opened.transaction() as transaction:
        for (queue, lease_id), message_ids in leases.items():
            settled += settle(transaction, queue, lease_id, message_ids)
    output.records(settled)
