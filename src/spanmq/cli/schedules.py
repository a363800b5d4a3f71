"""Recurring messages."""

from typing import Annotated

import typer

from spanmq.body import RawJson
from spanmq.cli.connect import client
from spanmq.cli.json_text import json_of
from spanmq.cli.option import AsJson, Dsn, GroupName, HeadersText, QueueName, object_of
from spanmq.cli.output import Output

commands = typer.Typer()

ScheduleName = Annotated[str, typer.Argument(metavar="NAME", help="The schedule.", show_default=False)]


@commands.command()
def schedule(
    name: ScheduleName,
    queue: QueueName,
    cron: Annotated[
        str,
        typer.Argument(metavar="CRON", help="When: '*/5 * * * *' is every five minutes.", show_default=False),
    ],
    body: Annotated[str, typer.Argument(metavar="BODY", help="JSON.", show_default=False)],
    time_zone: Annotated[str, typer.Option(help="Whose clock, such as Europe/Berlin.")] = "UTC",
    headers: HeadersText = None,
    group: GroupName = None,
    catch_up: Annotated[
        bool, typer.Option("--catch-up", help="Send each that was missed, not one for all of them.")
    ] = False,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Send a message again and again, or change when and what."""
    output = Output(as_json=as_json)
    try:
        json_of(body)
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"the body is not valid JSON: {error}") from error
    own = object_of(headers, "headers")
    with client(dsn) as opened:
        opened.schedule(
            name,
            queue,
            cron,
            RawJson(body),
            time_zone=time_zone,
            headers=own,
            group=group,
            catch_up=catch_up,
        )
    output.done(f"scheduled {name}", name=name)


@commands.command()
def unschedule(name: ScheduleName, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """End a recurring message."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        existed = opened.unschedule(name)
    output.done(f"ended {name}" if existed else f"there is no schedule {name}", name=name, existed=existed)


@commands.command()
def list_schedules(dsn: Dsn = None, as_json: AsJson = False) -> None:
    """List the recurring messages."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        output.records(opened.list_schedules(), empty="there are no schedules")


@commands.command()
def pause_schedule(name: ScheduleName, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Let the times of a recurring message pass."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        opened.pause_schedule(name)
    output.done(f"paused {name}", name=name)


@commands.command()
def resume_schedule(name: ScheduleName, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Send a paused recurring message again from now on."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        opened.resume_schedule(name)
    output.done(f"resumed {name}", name=name)
