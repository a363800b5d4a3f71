"""The noun `schedule`."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from spanmq.cli.option import BodyBytesMax, GroupName, Headers, QueueName, SomeQueues, raw_json
from spanmq.cli.output import Done
from spanmq.cli.verbs import Commands

if TYPE_CHECKING:
    from spanmq.client import Client

schedule = Commands()

ScheduleName = Annotated[str, typer.Argument(metavar="NAME", help="The schedule.")]


@schedule.verb()
def create(
    client: "Client",
    name: ScheduleName,
    queue: QueueName,
    cron: Annotated[
        str, typer.Argument(metavar="CRON", help="A cron expression: '*/5 * * * *' is every five minutes.")
    ],
    body: Annotated[Any, typer.Argument(metavar="BODY", parser=raw_json, help="JSON.")],
    time_zone: Annotated[str, typer.Option(help="The time zone, such as Europe/Berlin.")] = "UTC",
    headers: Headers = None,
    group: GroupName = None,
    catch_up: Annotated[
        bool, typer.Option("--catch-up", help="Send every missed message, not one for all of them.")
    ] = False,
) -> Done:
    """Create or replace a schedule, which sends a message at recurring times.

    $ spanmq schedule create nightly reports '30 2 * * *' '{"kind": "daily"}' --time-zone Europe/Berlin
    """
    client.schedules.create(
        name, queue, cron, body, time_zone=time_zone, headers=headers, group=group, catch_up=catch_up
    )
    return Done(f"scheduled {name}", {"name": name})


@schedule.verb("list", empty="no schedules")
def list_schedules(
    client: "Client",
    queues: SomeQueues = None,
    names: Annotated[list[str] | None, typer.Option("--name", help="Only this one; repeatable.")] = None,
    body_bytes_max: BodyBytesMax = None,
) -> Any:
    """List the schedules.

    $ spanmq schedule list
    """
    return client.schedules.list(queues=queues or None, names=names or None, body_bytes_max=body_bytes_max)


@schedule.verb()
def pause(client: "Client", name: ScheduleName) -> Done:
    """Pause a schedule: it sends nothing until it is resumed.

    $ spanmq schedule pause nightly
    """
    client.schedules.pause(name)
    return Done(f"paused {name}", {"name": name})


@schedule.verb()
def resume(client: "Client", name: ScheduleName) -> Done:
    """Resume a paused schedule from now on.

    $ spanmq schedule resume nightly
    """
    client.schedules.resume(name)
    return Done(f"resumed {name}", {"name": name})


@schedule.verb()
def run(client: "Client", name: ScheduleName) -> Done:
    """Send the message of a schedule once now; its times stay as they are.

    $ spanmq schedule run nightly
    """
    message_id = client.schedules.run(name)
    return Done(f"sent message {message_id}", {"name": name, "message_id": message_id})


@schedule.verb()
def delete(client: "Client", name: ScheduleName) -> Done:
    """Delete a schedule; messages that it has sent stay.

    $ spanmq schedule delete nightly
    """
    existed = client.schedules.delete(name)
    sentence = f"deleted {name}" if existed else f"schedule {name} did not exist"
    return Done(sentence, {"name": name, "existed": existed})
