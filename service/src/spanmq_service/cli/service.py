"""`serve`: the HTTP service."""

import json
import logging
import signal
from dataclasses import replace
from typing import Annotated

import typer

from spanmq import errors
from spanmq.cli.parts import (
    INTERRUPTED,
    AsJson,
    Commands,
    Dsn,
    LogLevel,
    level_named,
    logging_lines,
    prepared_address,
    say,
)
from spanmq_service.settings import Settings

commands = Commands()


@commands.command()
def serve(
    settings: Settings,
    without_tokens: Annotated[
        bool, typer.Option("--without-tokens", help="Give every caller on this machine all rights.")
    ] = False,
    log_level: LogLevel = "info",
    without_dashboard: Annotated[
        bool, typer.Option("--without-dashboard", help="Show no pages; only the routes answer.")
    ] = False,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Serve queues over HTTP, and the dashboard.

    SIGTERM and Ctrl-C answer waiting requests, finish the others within --grace, and end it; a second one
    ends it at once. It logs to stderr; --json prints the address that it listens on, as one line.

    $ spanmq serve --dsn postgresql://app@db/app --port 8080
    """
    level = level_named(log_level)
    try:
        from spanmq_service.dashboard import pages
        from spanmq_service.server import serve as run
    except ModuleNotFoundError as error:
        raise errors.ExtraNotInstalledError(
            f"the service needs {error.name}, which is not installed", extra="service"
        ) from error

    def announce(address: str) -> None:
        if as_json:
            print(json.dumps({"event": "service_started", "address": address}), flush=True)  # noqa: T201
        else:
            what = "the API" if without_dashboard else "the dashboard and the API"
            say(f"spanmq: serving {what} at {address}, routes: {address}/docs")

    # uvicorn's own messages are for its developers.
    logging.getLogger("uvicorn").setLevel(max(level, logging.WARNING))
    with logging_lines(level), prepared_address(dsn) as server_dsn:
        ended_by = run(
            replace(settings, dsn=server_dsn, with_tokens=not without_tokens),
            pages=None if without_dashboard else pages,
            announce=announce,
        )
    if ended_by == signal.SIGINT:
        say("spanmq: interrupted")
        raise typer.Exit(INTERRUPTED)
