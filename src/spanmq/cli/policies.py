"""Policies: how queues deliver."""

from typing import Annotated

import typer

from spanmq.cli.connect import client
from spanmq.cli.json_text import json_of
from spanmq.cli.option import AsJson, Dsn, QueueName
from spanmq.cli.output import Output

commands = typer.Typer()


@commands.command()
def get_policy(queue: QueueName, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Show a queue's policy."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        output.records([opened.get_policy(queue)])


@commands.command()
def set_policy(
    queue: QueueName,
    settings: Annotated[
        list[str],
        typer.Argument(
            metavar="SETTING=VALUE…", help="Such as max_attempts=5; null: the default.", show_default=False
        ),
    ],
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Change settings of a queue's policy and show it: `set-policy orders max_attempts=5 ordered=true`."""
    output = Output(as_json=as_json)
    changed = dict(map(setting_of, settings))
    with client(dsn) as opened:
        output.records([opened.set_policy(queue, changed)])


def setting_of(text: str) -> tuple[str, object]:
    """Read SETTING=VALUE."""
    name, sign, value = text.partition("=")
    if not (name and sign):
        raise typer.BadParameter(f"{text!r} is no SETTING=VALUE")
    try:
        return name, json_of(value)
    except ValueError:
        # An interval, such as 3 days, needs no quotes.
        return name, value
