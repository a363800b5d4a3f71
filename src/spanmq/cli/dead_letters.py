"""Dead letters: look at what failed for good, put it back, discard it."""

from datetime import datetime
from typing import Annotated

import typer

from spanmq.body import RawJson
from spanmq.cli.connect import client
from spanmq.cli.json_text import json_of
from spanmq.cli.option import AsJson, BodyBytesMax, Dsn, HeadersText, QueueName, Yes, confirm, object_of
from spanmq.cli.output import Output
from spanmq.dead_letter_calls import UNCHANGED

commands = typer.Typer()

Category = Annotated[str | None, typer.Option(help="Only of this category.", show_default=False)]
ErrorText = Annotated[
    str | None,
    typer.Option("--error", metavar="PATTERN", help="Only errors that match; a regex.", show_default=False),
]
ErrorClass = Annotated[str | None, typer.Option(help="Only of this class.", show_default=False)]
Since = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Only those that died then or later.", show_default=False),
]
Until = Annotated[
    str | None, typer.Option(metavar="TIME", help="Only those that died before.", show_default=False)
]
Payload = Annotated[
    str | None,
    typer.Option(metavar="JSON", help="Only those whose body contains this.", show_default=False),
]
OfRedriven = Annotated[bool, typer.Option("--redriven", help="Those that were put back, not those waiting.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Do nothing; only say what would be done.")]
Quantity = Annotated[int, typer.Option("--quantity", "-n", help="How many at most.")]
Delay = Annotated[float, typer.Option(help="Seconds until the first of them can be received.")]
OfQueue = Annotated[
    str | None, typer.Argument(metavar="QUEUE", help="One queue, or all.", show_default=False)
]
COLUMNS = (
    "dead_letter_id",
    "queue",
    "message_id",
    "dead_at",
    "category",
    "error_class",
    "error",
    "attempts",
    "group",
    "redriven_at",
    "body",
)


@commands.command()
def dead_letters(
    queue: OfQueue = None,
    category: Category = None,
    error: ErrorText = None,
    error_class: ErrorClass = None,
    since: Since = None,
    until: Until = None,
    payload: Payload = None,
    redriven: OfRedriven = False,
    after: Annotated[int, typer.Option(help="Only dead letters with an id above this one.")] = 0,
    quantity: Quantity = 100,
    body_bytes_max: BodyBytesMax = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """List dead letters in the order in which they died; --json has their whole story."""
    output = Output(as_json=as_json)
    contained, times = object_of(payload, "payload"), (_time_of(since), _time_of(until))
    with client(dsn) as opened:
        found = opened.dead_letters(
            queue,
            category=category,
            error=error,
            error_class=error_class,
            since=times[0],
            until=times[1],
            payload=contained,
            redriven=redriven,
            after=after,
            quantity=quantity,
            body_bytes_max=body_bytes_max,
        )
        output.records(found, columns=COLUMNS, empty="no dead letters")


@commands.command()
def dead_letters_of(
    queue: QueueName,
    message_id: Annotated[int, typer.Argument(metavar="ID", help="The message.", show_default=False)],
    body_bytes_max: BodyBytesMax = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """List the dead letters that a message became; --json has their whole story."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        found = opened.dead_letters_of(queue, message_id, body_bytes_max=body_bytes_max)
    output.records(found, columns=COLUMNS, empty="it never died")


@commands.command()
def count_dead_letters(queue: OfQueue = None, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Count the dead letters that wait, by queue and category."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        output.records(opened.count_dead_letters(queue), empty="no dead letters")


@commands.command()
def redrive(
    queue: QueueName,
    category: Category = None,
    error: ErrorText = None,
    error_class: ErrorClass = None,
    since: Since = None,
    until: Until = None,
    payload: Payload = None,
    quantity: Quantity = 1_000,
    rate: Annotated[float | None, typer.Option(help="So many a second.", show_default=False)] = None,
    delay: Delay = 0.0,
    dry_run: DryRun = False,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Put dead letters back into their queue, the lowest ids first; none twice."""
    output = Output(as_json=as_json)
    contained, times = object_of(payload, "payload"), (_time_of(since), _time_of(until))
    with client(dsn) as opened:
        redriven = opened.redrive(
            queue,
            category=category,
            error=error,
            error_class=error_class,
            since=times[0],
            until=times[1],
            payload=contained,
            quantity=quantity,
            rate=rate,
            delay=delay,
            dry_run=dry_run,
        )
    output.records(redriven, empty="no dead letters")


@commands.command()
def redrive_message(
    queue: QueueName,
    message_id: Annotated[int, typer.Argument(metavar="ID", help="The message.", show_default=False)],
    body: Annotated[
        str | None, typer.Option(metavar="JSON", help="In place of the body that it has.", show_default=False)
    ] = None,
    headers: HeadersText = None,
    delay: Delay = 0.0,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Put one dead letter back, repaired if a body or headers are given."""
    output = Output(as_json=as_json)
    repaired = UNCHANGED if body is None else _body_of(body)
    given = object_of(headers, "headers")
    with client(dsn) as opened:
        redriven = opened.redrive_message(queue, message_id, body=repaired, headers=given, delay=delay)
    output.done(f"{redriven} is back in {queue}", queue=queue, message_id=redriven)


@commands.command()
def purge_dead_letters(
    queue: QueueName,
    category: Category = None,
    error: ErrorText = None,
    error_class: ErrorClass = None,
    since: Since = None,
    until: Until = None,
    payload: Payload = None,
    redriven: OfRedriven = False,
    quantity: Quantity = 1_000,
    dry_run: DryRun = False,
    yes: Yes = False,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Delete dead letters for good."""
    output = Output(as_json=as_json)
    contained, times = object_of(payload, "payload"), (_time_of(since), _time_of(until))
    if not dry_run:
        confirm(f"Delete up to {quantity} dead letters of {queue}?", yes=yes)
    with client(dsn) as opened:
        purged = opened.purge_dead_letters(
            queue,
            category=category,
            error=error,
            error_class=error_class,
            since=times[0],
            until=times[1],
            payload=contained,
            redriven=redriven,
            quantity=quantity,
            dry_run=dry_run,
        )
    output.done(
        f"{purged} dead letters would go" if dry_run else f"deleted {purged} dead letters",
        queue=queue,
        purged=purged,
        dry_run=dry_run,
    )


def _time_of(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is no time such as 2030-01-31T12:00:00Z") from error
    # Without a zone it is the time of this machine.
    return time.astimezone()


def _body_of(text: str) -> RawJson:
    try:
        json_of(text)
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"the body is not valid JSON: {error}") from error
    return RawJson(text)
