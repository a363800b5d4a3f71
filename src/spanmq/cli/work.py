"""The worker: a program that receives, calls a handler for each message, and settles."""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from spanmq import errors
from spanmq.cli.connect import address, prepared_address
from spanmq.cli.failure import INTERRUPTED, say
from spanmq.cli.option import AsJson, Dsn

if TYPE_CHECKING:
    from spanmq.worker.event import Event

commands = typer.Typer()


@commands.command()
def worker(
    handler: Annotated[
        str, typer.Argument(metavar="MODULE:HANDLER", help="The function, such as shop.jobs:ship.")
    ],
    queue: Annotated[
        list[str], typer.Option("--queue", "-q", help="A queue to receive from; may be given again.")
    ],
    concurrency: Annotated[int, typer.Option(help="How many handlers run at once.")] = 10,
    batch: Annotated[int, typer.Option(help="How many messages one call takes at most.")] = 250,
    in_batches: Annotated[
        bool, typer.Option("--in-batches", help="The handler takes a list of messages.")
    ] = False,
    lease: Annotated[
        float | None,
        typer.Option(help="Seconds of a lease, extended as needed.", show_default="the queue's policy"),
    ] = None,
    lease_max: Annotated[float, typer.Option(help="Seconds after which it is not extended.")] = 3600.0,
    handler_timeout: Annotated[
        float | None, typer.Option(help="Seconds that a handler may take.", show_default=False)
    ] = None,
    grace: Annotated[float, typer.Option(help="Seconds that handlers have to end after a signal.")] = 25.0,
    pooler: Annotated[
        bool,
        typer.Option("--pooler", help="The DSN leads to a pooler in transaction mode, such as PgBouncer."),
    ] = False,
    name: Annotated[
        str | None,
        typer.Option(help="The worker's name in records of failures.", show_default="host:process:random"),
    ] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Receive messages, call a handler for each, and settle them.

    SIGTERM and Ctrl-C let it take no more, finish what it has within --grace, and give back the rest; a
    second one ends it at once. It logs to stderr; --json prints every event, a line each, too.
    """
    from spanmq.worker import Worker, load, log
    from spanmq.worker.event import WorkerStopping

    level = logging.getLevelNamesMapping().get(log_level.upper())
    if level is None:
        raise errors.InvalidArgumentError(f"there is no log level {log_level!r}")
    reasons = []

    def observe(event: Event) -> None:
        if isinstance(event, WorkerStopping):
            reasons.append(event.reason)
        log.write(event)
        if as_json:
            print_event(event)

    # A handler stands in the current folder more often than in an installed package.
    sys.path.insert(0, "")
    function = load(handler)
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    with address(dsn) if dsn is not None else prepared_address() as found:
        Worker(
            queue,
            function,
            dsn=found,
            name=name,
            observers=[observe],
            concurrency=concurrency,
            batch=batch,
            in_batches=in_batches,
            lease=lease,
            lease_max=lease_max,
            handler_timeout=handler_timeout,
            grace=grace,
            pooler=pooler,
        ).run()
    if "SIGINT" in reasons:
        say("spanmq: interrupted")
        raise typer.Exit(INTERRUPTED)


def print_event(event: Event) -> None:
    """Print an event as JSON, at once."""
    from spanmq.worker.event import name_of

    print(json.dumps({"event": name_of(event), **asdict(event)}), flush=True)  # noqa: T201
