"""Taking and looking: receive, PGMQ's reads, pop, peek."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from spanmq.cli.connect import client
from spanmq.cli.interrupt import held_back
from spanmq.cli.option import (
    AsJson,
    BodyBytesMax,
    Dsn,
    Lease,
    MessageIds,
    Quantity,
    QueueName,
    Wait,
    delay_of,
    ids_of,
    object_of,
)
from spanmq.cli.output import Output
from spanmq.errors import NotSupportedByUpstreamError

if TYPE_CHECKING:
    from spanmq.client import Client
    from spanmq.message import Message

commands = typer.Typer()

After = Annotated[int, typer.Option(help="Only ids above this one.")]


@commands.command()
def receive(
    queue: QueueName,
    quantity: Quantity = 1,
    lease: Annotated[
        float | None,
        typer.Option(
            help="Seconds for which nobody else gets them; else as the policy says.", show_default=False
        ),
    ] = None,
    slots: Annotated[int, typer.Option(help="In how many transactions they will be settled.")] = 1,
    wait: Wait = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Take messages under a lease, oldest first; settle them with ack before it ends."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        _show(output, opened, queue, opened.receive(queue, quantity, lease=lease, slots=slots, wait=wait))


@commands.command()
def read(
    queue: QueueName,
    quantity: Quantity = 1,
    lease: Lease = 30.0,
    conditional: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="Only messages whose body contains this.", show_default=False),
    ] = None,
    wait: Wait = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Take messages as PGMQ's read does; settle them with delete or archive."""
    output = Output(as_json=as_json)
    wanted = object_of(conditional, "condition")
    with client(dsn) as opened:
        _show(output, opened, queue, opened.read(queue, quantity, lease=lease, conditional=wanted, wait=wait))


@commands.command()
def read_grouped(
    queue: QueueName,
    quantity: Quantity = 1,
    lease: Lease = 30.0,
    wait: Wait = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Take messages in the order of their groups, filling up from the oldest group."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        _show(output, opened, queue, opened.read_grouped(queue, quantity, lease=lease, wait=wait))


@commands.command()
def read_grouped_rr(
    queue: QueueName,
    quantity: Quantity = 1,
    lease: Lease = 30.0,
    wait: Wait = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Take messages in the order of their groups, from all groups in turn."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        _show(output, opened, queue, opened.read_grouped_rr(queue, quantity, lease=lease, wait=wait))


@commands.command()
def read_grouped_head(
    queue: QueueName,
    quantity: Quantity = 1,
    lease: Lease = 30.0,
    wait: Wait = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Take the first message of each of several groups."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        _show(output, opened, queue, opened.read_grouped_head(queue, quantity, lease=lease, wait=wait))


@commands.command()
def pop(queue: QueueName, quantity: Quantity = 1, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Take messages out for good and print them."""
    output = Output(as_json=as_json)
    # What was popped is nowhere else any more: it is gone only once it is printed, whatever comes.
    with client(dsn) as opened, held_back(), opened.transaction() as transaction:
        _show(output, opened, queue, transaction.pop(queue, quantity))


@commands.command()
def peek(
    queue: QueueName,
    quantity: Quantity = 10,
    after: After = 0,
    body_bytes_max: BodyBytesMax = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Look at messages without taking them, in whatever state they are."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        output.messages(opened.peek(queue, quantity, after=after, body_bytes_max=body_bytes_max))


@commands.command()
def peek_archive(
    queue: QueueName,
    quantity: Quantity = 10,
    after: After = 0,
    body_bytes_max: BodyBytesMax = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Look at archived messages."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        found = opened.peek_archive(queue, quantity, after=after, body_bytes_max=body_bytes_max)
        output.messages(found, empty="the archive has none")


@commands.command()
def set_vt(
    queue: QueueName,
    message_ids: MessageIds,
    delay: Annotated[str, typer.Option(metavar="SECONDS|TIME", help="From now, or the moment itself.")],
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Hide messages for a time from now, or until a time; 0 shows them at once."""
    output = Output(as_json=as_json)
    ids = ids_of(message_ids)
    with client(dsn) as opened:
        output.messages(opened.set_vt(queue, ids, delay_of(delay)), empty="there are no such messages")


def _show(output: Output, opened: Client, queue: str, messages: list[Message]) -> None:
    is_paused = False
    if not messages and not output.as_json:
        with suppress(NotSupportedByUpstreamError):
            is_paused = any(each.is_paused for each in opened.glance([queue], most=1))
    output.messages(messages, empty="no messages: the queue is paused" if is_paused else "no messages")
