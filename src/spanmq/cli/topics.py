"""The nouns `topic`, `subscription` and `notification`: copies and announcements of messages."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from spanmq.cli.option import DryRun, QueueName, time_option
from spanmq.cli.output import Done, number_of
from spanmq.cli.sending import send_topic
from spanmq.cli.verbs import Commands

if TYPE_CHECKING:
    from spanmq.client import Client

topic = Commands()
subscription = Commands()
topic.command("send")(send_topic)


@subscription.verb()
def create(
    client: "Client",
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the subscription.")],
    queue: QueueName,
    waiting: Annotated[bool, typer.Option(help="Begin with the unsettled messages of the queue.")] = False,
    since: Annotated[Any, time_option("Begin with what was sent then or later.")] = None,
    since_id: Annotated[int | None, typer.Option(help="Begin with the message of this id.")] = None,
) -> Done:
    """Create a queue that gets every message of another queue, without a second copy.

    `spanmq queue drop` drops it.

    $ spanmq subscription create audit orders
    """
    client.subscriptions.create(name, queue, waiting=waiting, since=since, since_id=since_id)
    return Done(f"queue {name} gets every message of queue {queue}", {"subscription": name, "queue": queue})


@subscription.verb(empty="a subscription, whose log is that of its queue")
def replay_extent(client: "Client", queue: QueueName) -> Any:
    """Show since when the log has every message, and the disk space of these.

    kept_bytes would be gone without the policy setting `keep`.

    $ spanmq subscription replay-extent orders
    """
    extent = client.subscriptions.replay_extent(queue)
    return [] if extent is None else [extent]


@subscription.verb()
def replay(
    client: "Client",
    queue: QueueName,
    into: Annotated[str, typer.Argument(metavar="INTO", help="The queue that they are sent into.")],
    since: Annotated[Any, time_option("Only those sent then or later.")] = None,
    until: Annotated[Any, time_option("Only those sent before.")] = None,
    where: Annotated[
        str | None, typer.Option(metavar="PATH", help="Only those whose body meets this JSON path.")
    ] = None,
    after: Annotated[int, typer.Option(help="Only messages with an id above this one.")] = 0,
    quantity: Annotated[
        int | None, typer.Option("--limit", "-n", help="At most that many; default: all.")
    ] = None,
    message_ids: Annotated[
        list[int] | None, typer.Option("--id", help="Only messages with these ids.")
    ] = None,
    dry_run: DryRun = False,
) -> Done:
    """Send messages of a queue again into another one, settled or not, as far as the log has them.

    All or none: it is one transaction.

    $ spanmq subscription replay orders orders_fix --since 2030-01-31T12:00 --where '$.amount > 100' --dry-run
    """
    replayed = client.subscriptions.replay(
        *(queue, into),
        since=since,
        until=until,
        where=where,
        after=after,
        quantity=quantity,
        message_ids=message_ids or None,
        dry_run=dry_run,
    )
    return Done(
        f"{number_of(replayed.count, 'message')} would be sent"
        if dry_run
        else f"sent {number_of(replayed.count, 'message')} into {into}",
        {
            "queue": queue,
            "into": into,
            "count": replayed.count,
            "last_message_id": replayed.last_message_id,
            "dry_run": dry_run,
        },
    )
