"""`serve`: the HTTP service."""

import json
import logging
import signal
from pathlib import Path
from typing import Annotated

import typer

from spanmq import errors
from spanmq.cli.connect import address, prepared_address
from spanmq.cli.failure import INTERRUPTED, say
from spanmq.cli.log_lines import logging_lines
from spanmq.cli.option import AsJson, Dsn
from spanmq.cli.verbs import Commands

commands = Commands()


@commands.command()
def serve(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0: any that is free.")] = 8080,
    without_tokens: Annotated[
        bool, typer.Option("--without-tokens", help="Give every caller on this machine all rights.")
    ] = False,
    pool_size: Annotated[
        int, typer.Option(help="Connections to the database; three more listen and check it.")
    ] = 8,
    pool_timeout: Annotated[float, typer.Option(help="Seconds to wait for one of them; then 503.")] = 5.0,
    requests_max: Annotated[int, typer.Option(help="Maximum of concurrent requests; more get 503.")] = 200,
    requests_per_token_max: Annotated[
        int, typer.Option(help="Maximum of concurrent requests of one token; more get 429.")
    ] = 100,
    anonymous_max: Annotated[
        int, typer.Option(help="Requests without a valid token that wait for their client; more get 503.")
    ] = 100,
    waiting_max: Annotated[int, typer.Option(help="Requests that wait for messages at once.")] = 5_000,
    waiting_per_token_max: Annotated[int, typer.Option(help="Those of one token; more get 429.")] = 2_500,
    wait_max: Annotated[float, typer.Option(help="Seconds that a request may wait for messages.")] = 20.0,
    read_timeout: Annotated[
        float, typer.Option(help="Seconds to receive a request, and to send 16 kB of its answer.")
    ] = 20.0,
    body_bytes_max: Annotated[int, typer.Option(help="Bytes that a request may have.")] = 16 * 1024 * 1024,
    token_cache: Annotated[float, typer.Option(help="Seconds that tokens and keys are remembered.")] = 2.0,
    statement_timeout: Annotated[float, typer.Option(help="Seconds that the database may take.")] = 30.0,
    grace: Annotated[float, typer.Option(help="Seconds that requests have to end after a signal.")] = 25.0,
    tls_certificate: Annotated[
        Path | None, typer.Option(help="A file with the certificate chain, PEM.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="A file with its key, PEM.")] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
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
    level = logging.getLevelNamesMapping().get(log_level.upper())
    if level is None:
        raise errors.InvalidArgumentError(f"there is no log level {log_level!r}")
    try:
        from spanmq.dashboard import pages
        from spanmq.service import Settings
        from spanmq.service.server import serve as run
    except ModuleNotFoundError as error:
        raise errors.ExtraNotInstalledError(
            f"the service needs {error.name}, which is not installed", extra="service"
        ) from error

    def announce(found: str) -> None:
        if as_json:
            print(json.dumps({"event": "service_started", "address": found}), flush=True)  # noqa: T201
        else:
            what = "the API" if without_dashboard else "the dashboard and the API"
            say(f"spanmq: serving {what} at {found}, routes: {found}/docs")

    # uvicorn's own messages are for its developers.
    logging.getLogger("uvicorn").setLevel(max(level, logging.WARNING))
    with logging_lines(level), address(dsn) if dsn is not None else prepared_address() as found:
        ended_by = run(
            Settings(
                dsn=found,
                host=host,
                port=port,
                with_tokens=not without_tokens,
                pool_size=pool_size,
                pool_timeout=pool_timeout,
                requests_max=requests_max,
                requests_per_token_max=requests_per_token_max,
                anonymous_max=anonymous_max,
                waiting_max=waiting_max,
                waiting_per_token_max=waiting_per_token_max,
                wait_max=wait_max,
                read_timeout=read_timeout,
                body_bytes_max=body_bytes_max,
                token_cache=token_cache,
                statement_timeout=statement_timeout,
                grace=grace,
                tls_certificate=tls_certificate,
                tls_key=tls_key,
            ),
            pages=None if without_dashboard else pages,
            announce=announce,
        )
    if ended_by == signal.SIGINT:
        say("spanmq: interrupted")
        raise typer.Exit(INTERRUPTED)
