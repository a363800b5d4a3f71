"""Topics, and announcements of new messages."""

from typing import Annotated

import typer

from spanmq.cli.connect import client
from spanmq.cli.option import AsJson, Dsn, QueueName
from spanmq.cli.output import Output

commands = typer.Typer()

Pattern = Annotated[
    str,
    typer.Argument(
        metavar="PATTERN", help="Words and dots; * is one word, # any number.", show_default=False
    ),
]
Throttle = Annotated[float, typer.Option(help="Seconds between two announcements at least.")]
BINDING_COLUMNS = ("pattern", "queue", "expression", "bound_at")


@commands.command()
def bind_topic(pattern: Pattern, queue: QueueName, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Let a queue get what is sent to the topics that match; does nothing if it does already."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        opened.bind_topic(pattern, queue)
    output.done(f"{pattern} goes to {queue}", pattern=pattern, queue=queue)


@commands.command()
def unbind_topic(pattern: Pattern, queue: QueueName, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Let a queue no longer get what is sent to these topics."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        was_bound = opened.unbind_topic(pattern, queue)
    sentence = f"{pattern} no longer goes to {queue}" if was_bound else f"{pattern} did not go to {queue}"
    output.done(sentence, pattern=pattern, queue=queue, unbound=was_bound)


@commands.command()
def list_topic_bindings(
    queue: Annotated[
        str | None, typer.Argument(metavar="QUEUE", help="One queue, or all.", show_default=False)
    ] = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """List which topics go to which queues."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        output.records(opened.list_topic_bindings(queue), columns=BINDING_COLUMNS, empty="no bindings")


@commands.command("test-routing")
def routing(
    routing_key: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", show_default=False)],
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """List the queues that a topic would reach; sends nothing."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        output.records(opened.test_routing(routing_key), columns=BINDING_COLUMNS, empty="no bindings")


@commands.command()
def enable_notify_insert(
    queue: QueueName, throttle: Throttle = 0.25, dsn: Dsn = None, as_json: AsJson = False
) -> None:
    """Announce the new messages of a queue, so that those who wait wake at once."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        opened.enable_notify_insert(queue, throttle=throttle)
    output.done(f"{queue} announces new messages, every {throttle:g} s at most", queue=queue)


@commands.command()
def update_notify_insert(
    queue: QueueName,
    throttle: Annotated[float, typer.Option(help="Seconds between two announcements at least.")],
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Change how often a queue announces new messages."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        opened.update_notify_insert(queue, throttle=throttle)
    output.done(f"{queue} announces new messages, every {throttle:g} s at most", queue=queue)


@commands.command()
def disable_notify_insert(queue: QueueName, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Announce new messages no more."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        opened.disable_notify_insert(queue)
    output.done(f"{queue} announces nothing", queue=queue)


@commands.command()
def list_notify_insert_throttles(dsn: Dsn = None, as_json: AsJson = False) -> None:
    """List the queues that announce their messages."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        output.records(opened.list_notify_insert_throttles(), empty="no queue announces its messages")
