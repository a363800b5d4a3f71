"""The noun `signal`."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from spanmq.cli.option import Limit, QueueName, raw_json
from spanmq.cli.output import Done
from spanmq.cli.verbs import Commands

if TYPE_CHECKING:
    from spanmq.client import Client

signal = Commands()


@signal.verb()
def send(
    client: "Client",
    queue: QueueName,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The signal.")],
    body: Annotated[Any, typer.Argument(metavar="[BODY]", parser=raw_json, help="Its body, as JSON.")] = None,
    keep_for: Annotated[float, typer.Option(help="Seconds for which it is kept if none waits.")] = 86_400.0,
    timed_out: Annotated[
        bool, typer.Option("--timed-out", help="End the wait as if its time was over, without a body.")
    ] = False,
) -> Done:
    """Send a signal to the message that waits for it; if none does, it is kept for a time.

    $ spanmq signal send orders approved:42 '{"by": "ann"}'
    $ spanmq signal send orders approved:43 --timed-out
    """
    outcome = client.signals.send(queue, name, body, keep_for=keep_for, timed_out=timed_out)
    return Done(f"{name} in {queue}: {outcome}", {"queue": queue, "name": name, "outcome": outcome})


@signal.verb("list", columns=("name", "is_wait", "made_at", "until", "body"), empty="no waits and no signals")
def list_signals(
    client: "Client",
    queue: QueueName,
    after: Annotated[str | None, typer.Option(help="Only names after this one.")] = None,
    limit: Limit = 100,
) -> Any:
    """List the messages that wait for a signal (is_wait), and the signals that are kept.

    $ spanmq signal list orders
    """
    return client.signals.list(queue, after=after, limit=limit)
