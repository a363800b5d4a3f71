"""The nouns `message` and `result`."""

from typing import TYPE_CHECKING, Annotated, Any

from spanmq.cli import settling
from spanmq.cli.connect import client
from spanmq.cli.interrupt import held_back
from spanmq.cli.option import (
    AsJson,
    DelayTime,
    Dsn,
    Lease,
    MessageId,
    MessageIds,
    Quantity,
    QueueName,
    Wait,
    object_option,
)
from spanmq.cli.output import MESSAGE_COLUMNS, Output, fields
from spanmq.cli.settling import taken
from spanmq.cli.verbs import Commands
from spanmq.model.message import obstacle

if TYPE_CHECKING:
    from spanmq.client import Client
    from spanmq.client.functions import Grouped
    from spanmq.model.message import Result

message = Commands()
result = Commands()
commands = Commands()
message.verb(empty="no messages")(settling.reject)
message.verb(empty="no messages")(settling.release)
message.verb(empty="no messages")(settling.extend)


@message.verb()
def state(client: "Client", queue: QueueName, message_id: MessageId) -> Any:
    """Show the state of a message, such as pending or dead, and what it waits for.

    For a pending message this is the first reason of `spanmq why`, for a failed one the next attempt.

    $ spanmq message state orders 17
    """
    state = client.inspect.state(queue, message_id)
    held = obstacle(client.inspect.explain(queue, message_id)) if state == "pending" else None
    record = {"message_id": message_id, "state": state, "waits_for": held.code if held else None}
    if held is not None:
        return {**record, "because": held.sentence}
    if state != "failed":
        return record
    failing = client.inspect.failing_messages(queue, after=message_id - 1, limit=1)
    if not failing or failing[0].message_id != message_id:  # tried again meanwhile
        return record
    error = ": ".join(filter(None, (failing[0].error_class, failing[0].error)))
    return {**record, "retry_at": failing[0].retry_at, "attempts": failing[0].attempts, "because": error}


@message.verb(empty="no messages")
def cancel(client: "Client", queue: QueueName, message_ids: MessageIds) -> Any:
    """Cancel messages: remove those that are not leased; the workers of the others end their handlers.

    $ spanmq message cancel orders 17 18
    """
    return client.cancel(queue, message_ids)


@message.verb(empty="no such messages")
def delete(client: "Client", queue: QueueName, message_ids: MessageIds) -> Any:
    """Delete messages, leased or not, and print the ids of those that existed.

    $ spanmq message delete orders 17 18
    """
    return [{"message_id": message_id} for message_id in client.delete(queue, message_ids)]


@message.verb(empty="no such messages")
def archive(client: "Client", queue: QueueName, message_ids: MessageIds) -> Any:
    """Move messages to the archive, leased or not, and print the ids of those that existed.

    $ spanmq message archive orders 17 18
    """
    return [{"message_id": message_id} for message_id in client.archive(queue, message_ids)]


@message.verb(columns=MESSAGE_COLUMNS, empty="no such messages")
def set_vt(client: "Client", queue: QueueName, message_ids: MessageIds, delay: DelayTime) -> Any:
    """Hide messages for a time from now, or until a time; 0 makes them visible at once.

    $ spanmq message set-vt orders 17 --delay 600
    """
    return client.set_vt(queue, message_ids, delay)


@message.verb(columns=MESSAGE_COLUMNS)
def read(
    client: "Client",
    queue: QueueName,
    quantity: Quantity = 1,
    lease: Lease = 30.0,
    conditional: Annotated[Any, object_option("Only messages whose body contains this.")] = None,
    wait: Wait = None,
) -> Any:
    """Read messages as PGMQ does; settle them with delete or archive.

    $ spanmq message read orders --conditional '{"customer": 17}'
    """
    return taken(client, queue, client.read(queue, quantity, lease=lease, conditional=conditional, wait=wait))


def _read_in_groups(name: str, grouped: "Grouped", summary: str) -> None:
    def read_grouped(
        client: "Client", queue: QueueName, quantity: Quantity = 1, lease: Lease = 30.0, wait: Wait = None
    ) -> Any:
        return taken(client, queue, client.read(queue, quantity, lease=lease, wait=wait, grouped=grouped))

    read_grouped.__doc__ = f"{summary}\n\n    $ spanmq message {name} orders --limit 10\n"
    message.verb(name, columns=MESSAGE_COLUMNS)(read_grouped)


_read_in_groups(
    "read-grouped", "fill", "Read messages in the order of their groups, from the oldest group on."
)
_read_in_groups(
    "read-grouped-rr", "round_robin", "Read messages in the order of their groups, from all groups in turn."
)
_read_in_groups("read-grouped-head", "head", "Read the first message of each of several groups.")


@message.command()
def pop(queue: QueueName, quantity: Quantity = 1, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Remove messages and print them.

    $ spanmq message pop orders
    """
    output = Output(as_json=as_json)
    # A popped message exists nowhere else: the transaction commits only after it is printed.
    with client(dsn) as opened, held_back(), opened.transaction() as transaction:
        output.show(taken(opened, queue, transaction.pop(queue, quantity)), columns=MESSAGE_COLUMNS)


@result.verb("get", columns=("queue", "message_id", "state", "message_state", "value", "error"))
def get_results(client: "Client", queue: QueueName, message_ids: MessageIds) -> Any:
    """Show what became of messages: the stored result, the error of a dead letter, or that no result is kept.

    For a message without a result, `message_state` is the state of the message, such as processing.

    $ spanmq result get orders 17 18
    """
    results = client.results.list(queue, message_ids)
    return [{**fields(result), "message_state": _message_state(client, result)} for result in results]


def _message_state(client: "Client", result: "Result") -> str | None:
    return client.inspect.state(result.queue, result.message_id) if result.state == "missing" else None
