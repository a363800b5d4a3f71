"""The nouns `dead-letter` and `category`: what failed for good, and what follows from which kind of failure."""

from typing import TYPE_CHECKING, Annotated, Any, Unpack

import typer

from spanmq.cli.option import (
    CategoryName,
    DeadLetterOptions,
    DryRun,
    ForQueue,
    Headers,
    Limit,
    MessageId,
    QueueName,
    Redriven,
    SomeSettings,
    Yes,
    confirm,
    raw_json,
)
from spanmq.cli.output import Done, Listed, number_of
from spanmq.cli.verbs import Commands

if TYPE_CHECKING:
    from spanmq.client import Client

dead_letter = Commands()
category = Commands()


Delay = Annotated[
    float | None,
    typer.Option(help="Seconds until the first can be received; default: the policy's redrive_delay."),
]


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
    **filters: Unpack[DeadLetterOptions],
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
    n = sum(letter.beside is None for letter in redriven)
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
    **filters: Unpack[DeadLetterOptions],
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


@category.verb("set-policy")
def set_category_policy(
    client: "Client", category: CategoryName, settings: SomeSettings = None, queue: ForQueue = None
) -> Any:
    """Change the policy of a category and show it.

    With --queue and without settings, remove the queue's own.

    $ spanmq category set-policy DEPENDENCY backoff_base=5 max_attempts=50
    $ spanmq category set-policy BUSINESS --queue orders
    """
    if not settings and queue is None:
        raise typer.BadParameter("pass settings, or a queue to remove its own settings")
    return client.dead_letters.categories.set_policy(
        category, dict(settings) if settings else None, queue=queue
    )
