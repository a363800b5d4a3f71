"""`receive`, and the commands that settle what it has received."""

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, Unpack

import typer

from spanmq.cli.option import (
    Category,
    ErrorText,
    Quantity,
    QueueName,
    SomeMessageIds,
    Wait,
    refuse_terminal,
    stdin_lines,
)
from spanmq.cli.output import MESSAGE_COLUMNS, Nothing
from spanmq.cli.verbs import Commands
from spanmq.codec.exact_json import json_of
from spanmq.errors import NotSupportedByUpstreamError
from spanmq.model import Leased

if TYPE_CHECKING:
    from spanmq.client import Client
    from spanmq.model import Message, Settled

commands = Commands()

SettledQueue = Annotated[
    str | None, typer.Argument(metavar="QUEUE", help="With a lease and ids; default: messages of stdin.")
]
LeaseId = Annotated[int | None, typer.Argument(metavar="LEASE_ID", help="As receive printed it.")]


class Held(TypedDict):
    """Messages under a lease."""

    queue: SettledQueue
    lease_id: LeaseId
    message_ids: SomeMessageIds


class Failed(Held):
    """Messages under a lease, and why they failed."""

    error: ErrorText
    category: Category
    error_class: Annotated[str | None, typer.Option(help="Such as ValueError.")]
    traceback: Annotated[str | None, typer.Option(help="Its traceback.")]
    worker: Annotated[str | None, typer.Option(help="The receiver that failed.")]


class Nacked(Failed):
    """The same, and when they are retried."""

    retry_in: Annotated[
        float | None, typer.Option(help="Seconds until the next attempt; default: the policy's backoff.")
    ]


@commands.verb(columns=MESSAGE_COLUMNS)
def receive(
    client: "Client",
    queue: QueueName,
    quantity: Quantity = 1,
    lease: Annotated[
        float | None,
        typer.Option(help="Seconds for which no other receiver gets them; default: the policy's."),
    ] = None,
    slots: Annotated[int, typer.Option(help="In how many transactions they will be settled.")] = 1,
    wait: Wait = None,
) -> Any:
    """Receive messages under a lease, oldest first; settle them with ack before it ends.

    $ spanmq receive orders --limit 10 --wait 20
    $ spanmq receive orders --json | spanmq ack
    """
    return taken(client, queue, client.receive(queue, quantity, lease=lease, slots=slots, wait=wait))


def taken(client: "Client", queue: str, messages: "list[Message]") -> "list[Message] | Nothing":
    """Return messages, or the reason that none was received."""

    def sentence() -> str:
        is_paused = False
        with suppress(NotSupportedByUpstreamError):
            is_paused = any(count.is_paused for count in client.inspect.count([queue], most=1))
        return "no messages: the queue is paused" if is_paused else "no messages"

    return messages or Nothing(sentence)


@commands.verb(empty="no messages")
def ack(client: "Client", **held: Unpack[Held]) -> Any:
    """Acknowledge messages, in one transaction.

    Reads messages from stdin, as receive --json prints them, or takes a queue, a lease and ids. A message
    that the lease no longer holds is "stale", and stays as it is.

    $ spanmq receive orders --json | spanmq ack
    $ spanmq ack orders 17 1 2 3
    """
    return _settled(client, "ack", **held)


@commands.verb(empty="no messages")
def nack(client: "Client", **failed: Unpack[Nacked]) -> Any:
    """Report a failure: each message becomes "retrying" or "dead", or is "stale".

    Takes messages as ack does.

    $ spanmq receive orders --json | spanmq nack --error "connection refused" --retry-in 60
    """
    return _settled(client, "nack", **failed)


def reject(client: "Client", **failed: Unpack[Failed]) -> Any:
    """Make messages dead letters at once: each becomes "dead", or is "stale".

    Takes messages as ack does.

    $ spanmq receive orders --json | spanmq message reject --error "no such customer"
    """
    return _settled(client, "reject", **failed)


def release(client: "Client", **held: Unpack[Held]) -> Any:
    """Return messages unhandled; this delivery does not count as an attempt.

    Takes messages as ack does.

    $ spanmq receive orders --json | spanmq message release
    """
    return _settled(client, "release", **held)


def extend(
    client: "Client",
    seconds: Annotated[float, typer.Option(help="From now.")],
    shorten: Annotated[bool, typer.Option("--shorten", help="Also where they are held longer.")] = False,
    **held: Unpack[Held],
) -> Any:
    """Hold messages longer: each becomes "extended", or is "stale". Others of the lease stay as they are.

    Takes messages as ack does.

    $ spanmq message extend orders 17 1 2 3 --seconds 600
    """
    return _settled(client, "extend", seconds=seconds, shorten=shorten, **held)


def _settled(
    client: "Client",
    verb: str,
    *,
    queue: str | None,
    lease_id: int | None,
    message_ids: list[int] | None,
    **how: Any,
) -> "list[Settled]":
    """Settle messages in one transaction, and return what became of them."""
    leases = _leases(queue, lease_id, message_ids)
    with client.transaction() as transaction:
        settled: list[Settled] = getattr(transaction, verb)(leases, **how)
        return settled


def _leases(queue: str | None, lease_id: int | None, message_ids: list[int] | None) -> list[Leased]:
    """Return the named messages, or those of stdin, by queue and lease."""
    if queue is not None:
        if lease_id is None or not message_ids:
            raise typer.BadParameter(
                "pass the queue, the lease_id of the receive, and the ids of the messages"
            )
        return [Leased(queue, lease_id, message_ids)]
    refuse_terminal("pipe messages into it, as receive --json prints them, or name QUEUE LEASE_ID ID...")
    leases: dict[tuple[str, int], list[int]] = {}
    for line in stdin_lines():
        try:
            message = json_of(line)
            name, lease, message_id = (message[field] for field in ("queue", "lease_id", "message_id"))
            leases.setdefault((name, lease), []).append(message_id)
        except (ValueError, RecursionError, LookupError, TypeError) as error:
            raise typer.BadParameter(f"{line[:80]!r} is not a message that receive --json printed") from error
    return [Leased(*lease, message_ids) for lease, message_ids in leases.items()]
