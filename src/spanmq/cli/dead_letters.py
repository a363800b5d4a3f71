"""The noun `dead-letter`."""

from typing import TYPE_CHECKING, Annotated, Any, Final, TypedDict, Unpack

import typer

from spanmq.cli.option import (
    BodyBytesMax,
    DryRun,
    Headers,
    Limit,
    MessageId,
    NewestFirst,
    QueueName,
    SomeQueue,
    Yes,
    confirm,
    object_option,
    raw_json,
    time_option,
)
from spanmq.cli.output import Done, Listed, number_of
from spanmq.cli.verbs import Commands

if TYPE_CHECKING:
    from spanmq.client import Client

dead_letter = Commands()


def _some(ids: list[int] | None) -> list[int] | None:
    # Typer makes an empty list of an option that is missing.
    return ids or None


class Filters(TypedDict):
    """A selection of dead letters."""

    category: Annotated[str | None, typer.Option(help="Only this category.")]
    error: Annotated[str | None, typer.Option(metavar="PATTERN", help="Only errors that match; a regex.")]
    error_class: Annotated[str | None, typer.Option(help="Only this class.")]
    since: Annotated[Any, time_option("Only those that died then or later.")]
    until: Annotated[Any, time_option("Only those that died before.")]
    payload: Annotated[Any, object_option("Only those whose body contains this.")]
    where: Annotated[
        str | None, typer.Option(metavar="PATH", help="Only those whose body meets this JSON path.")
    ]
    dead_letter_ids: Annotated[
        list[int] | None, typer.Option("--id", callback=_some, help="Only these dead_letter_ids.")
    ]


Redriven = Annotated[bool, typer.Option("--redriven", help="Redriven ones instead of pending ones.")]
Delay = Annotated[
    float | None,
    typer.Option(help="Seconds until the first can be received; default: the policy's redrive_delay."),
]
COLUMNS: Final = (
    *("dead_letter_id", "queue", "message_id", "dead_at", "category", "error_class", "error", "attempts"),
    *("group", "redriven_at", "body"),
)


@dead_letter.verb("list", columns=COLUMNS, empty="no dead letters")
def list_dead_letters(
    client: "Client",
    queue: SomeQueue = None,
    redriven: Redriven = False,
    after: Annotated[int, typer.Option(help="Only dead letters behind the one with this id.")] = 0,
    limit: Limit = 100,
    body_bytes_max: BodyBytesMax = None,
    newest_first: NewestFirst = False,
    **filters: Unpack[Filters],
) -> Any:
    """List dead letters in the order in which they died; --json has all fields.

    $ spanmq dead-letter list orders --error timeout --since 2030-01-31T12:00
    """
    return client.dead_letters.list(
        queue,
        redriven=redriven,
        after=after,
        limit=limit,
        body_bytes_max=body_bytes_max,
        newest_first=newest_first,
        **filters,
    )


@dead_letter.verb(columns=COLUMNS, empty="it never became a dead letter")
def show(
    client: "Client", queue: QueueName, message_id: MessageId, body_bytes_max: BodyBytesMax = None
) -> Any:
    """Show the dead letters that a message became; --json has all fields.

    $ spanmq dead-letter show orders 17
    """
    return client.dead_letters.show(queue, message_id, body_bytes_max=body_bytes_max)


@dead_letter.verb(empty="no dead letters")
def count(client: "Client", queue: SomeQueue = None) -> Any:
    """Count the pending dead letters by queue and category.

    $ spanmq dead-letter count
    """
    return client.dead_letters.count(queue)


@dead_letter.verb(columns=("message_id", "visible_at", "before", "after", "beside"), empty="no dead letters")
def redrive(
    client: "Client",
    queue: QueueName,
    patch: Annotated[
        Any, typer.Option(metavar="JSON", parser=raw_json, help="Change each body by this JSON Patch.")
    ] = None,
    limit: Limit = 1_000,
    rate: Annotated[float | None, typer.Option(help="Number of messages per second.")] = None,
    delay: Delay = None,
    dry_run: DryRun = False,
    **filters: Unpack[Filters],
) -> Any:
    """Return dead letters to their queue, lowest ids first; none twice.

    With --patch it is all that match or none, and --dry-run shows the first ten before and after it. One beside a
    message in the queue that has the same dedup id is left.

    $ spanmq dead-letter redrive orders --category DEPENDENCY --rate 50
    $ spanmq dead-letter redrive orders --patch '[{"op": "remove", "path": "/discount"}]' --dry-run
    """
    redriven = client.dead_letters.redrive(
        queue, patch=patch, limit=limit, rate=rate, delay=delay, dry_run=dry_run, **filters
    )
    n = sum(each.beside is None for each in redriven)
    left = len(redriven) - n
    if not dry_run:
        return Listed(redriven, f"{number_of(left, 'dead letter')} left: see BESIDE") if left else redriven
    is_all = len(redriven) < limit
    planned = f"{number_of(n, 'dead letter')} would be redriven"
    if left:
        planned += f", {left} left: see BESIDE"
    return Listed(redriven, planned if is_all else f"{planned}, as --limit allows")


@dead_letter.verb()
def edit(
    client: "Client",
    queue: QueueName,
    message_id: MessageId,
    body: Annotated[
        Any, typer.Option(metavar="JSON", parser=raw_json, help="The new body; default: as it is.")
    ] = None,
    headers: Headers = None,
    delay: Delay = None,
) -> Done:
    """Return one dead letter to its queue, with another body or other headers if given.

    $ spanmq dead-letter edit orders 17 --body '{"customer": 17}'
    """
    from spanmq.client.functions import UNCHANGED

    new_body = UNCHANGED if body is None else body
    redriven = client.dead_letters.edit(queue, message_id, body=new_body, headers=headers, delay=delay)
    return Done(f"{redriven} is in {queue} again", {"queue": queue, "message_id": redriven})


@dead_letter.verb()
def discard(
    client: "Client",
    queue: QueueName,
    redriven: Redriven = False,
    limit: Limit = 1_000,
    dry_run: DryRun = False,
    yes: Yes = False,
    **filters: Unpack[Filters],
) -> Done:
    """Delete dead letters for good.

    $ spanmq dead-letter discard orders --category BUSINESS --dry-run
    """
    if not dry_run:
        confirm(f"Delete up to {number_of(limit, 'dead letter')} of {queue}?", yes=yes)
    purged = client.dead_letters.discard(queue, redriven=redriven, limit=limit, dry_run=dry_run, **filters)
    return Done(
        f"{number_of(purged, 'dead letter')} would be deleted"
        if dry_run
        else f"deleted {number_of(purged, 'dead letter')}",
        {"queue": queue, "purged": purged, "dry_run": dry_run},
    )
