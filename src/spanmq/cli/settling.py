"""Settling: ack, cancel, delete, archive."""

from collections.abc import Sequence
from typing import Annotated

import typer

from spanmq.cli.connect import client
from spanmq.cli.json_text import json_of
from spanmq.cli.option import AsJson, Dsn, MessageIds, QueueName, ids_of, refuse_terminal, stdin_lines
from spanmq.cli.output import Output
from spanmq.message import Settled

commands = typer.Typer()


@commands.command()
def ack(
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Settle the messages of stdin, in one transaction: `spanmq receive orders --json | … | spanmq ack`.

    A message that its lease no longer holds is "stale", and left alone.
    """
    output = Output(as_json=as_json)
    leases = received()
    settled: list[Settled] = []
    with client(dsn) as opened, opened.transaction() as transaction:
        for (queue, lease_id), message_ids in leases.items():
            settled += transaction.ack_lease(queue, lease_id, message_ids)
    output.records(settled)


@commands.command()
def ack_lease(
    queue: QueueName,
    lease_id: Annotated[
        int, typer.Argument(metavar="LEASE_ID", help="As receive printed it.", show_default=False)
    ],
    message_ids: MessageIds,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Settle messages by the lease that they were received under; one that it no longer holds is "stale"."""
    output = Output(as_json=as_json)
    ids = ids_of(message_ids)
    with client(dsn) as opened:
        output.records(opened.ack_lease(queue, lease_id, ids))


@commands.command()
def cancel(queue: QueueName, message_ids: MessageIds, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Take messages back that nobody holds; others are "processing" or "unknown"."""
    output = Output(as_json=as_json)
    ids = ids_of(message_ids)
    with client(dsn) as opened:
        output.records(opened.cancel(queue, ids))


@commands.command()
def delete(queue: QueueName, message_ids: MessageIds, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Delete messages, whoever holds them; prints the ids of those that were there."""
    output = Output(as_json=as_json)
    ids = ids_of(message_ids)
    with client(dsn) as opened:
        _print_ids(output, opened.delete(queue, ids))


@commands.command()
def archive(queue: QueueName, message_ids: MessageIds, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Move messages to the archive, whoever holds them; prints the ids of those that were there."""
    output = Output(as_json=as_json)
    ids = ids_of(message_ids)
    with client(dsn) as opened:
        _print_ids(output, opened.archive(queue, ids))


def received() -> dict[tuple[str, int], list[int]]:
    """Read messages from stdin; give their ids by queue and lease."""
    refuse_terminal("pipe messages into it, as receive --json prints them; …-lease takes a lease and ids")
    leases: dict[tuple[str, int], list[int]] = {}
    for line in stdin_lines():
        queue, lease_id, message_id = _received(line)
        leases.setdefault((queue, lease_id), []).append(message_id)
    return leases


def _print_ids(output: Output, ids: Sequence[int]) -> None:
    output.records([{"message_id": each} for each in ids], empty="there were no such messages")


def _received(line: str) -> tuple[str, int, int]:
    try:
        message = json_of(line)
        queue, lease_id, message_id = (message[name] for name in ("queue", "lease_id", "message_id"))
    except (ValueError, RecursionError, LookupError, TypeError) as error:
        raise typer.BadParameter(f"{line[:80]!r} is no message that receive --json printed") from error
    return queue, lease_id, message_id
