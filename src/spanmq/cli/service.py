"""The HTTP service, and the tokens of those who use it."""

import json
import logging
import signal
from pathlib import Path
from typing import Annotated

import typer

from spanmq import errors
from spanmq.cli.connect import address, client, prepared_address
from spanmq.cli.failure import INTERRUPTED, say
from spanmq.cli.log_lines import logging_lines
from spanmq.cli.option import AsJson, Dsn, Expires, delay_of
from spanmq.cli.output import Output

commands = typer.Typer()
tokens = typer.Typer(help="Who may do what over HTTP.", no_args_is_help=True)

TokenName = Annotated[str, typer.Argument(metavar="NAME", help="The token's name.", show_default=False)]


@commands.command()
def serve(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0: any that is free.")] = 8080,
    without_tokens: Annotated[
        bool,
        typer.Option("--without-tokens", help="Let anybody on this machine do everything."),
    ] = False,
    pool_size: Annotated[
        int, typer.Option(help="Connections to the database; three more listen and look.")
    ] = 8,
    pool_timeout: Annotated[float, typer.Option(help="Seconds to wait for one of them; then 503.")] = 5.0,
    requests_max: Annotated[int, typer.Option(help="Requests at work at once; more get 503.")] = 200,
    requests_per_token_max: Annotated[int, typer.Option(help="Of one token; more get 429.")] = 100,
    anonymous_max: Annotated[
        int, typer.Option(help="Requests without a valid token that wait for their client; more get 503.")
    ] = 100,
    waiting_max: Annotated[int, typer.Option(help="Requests that wait for messages at once.")] = 5_000,
    waiting_per_token_max: Annotated[int, typer.Option(help="Of one token; more get 429.")] = 2_500,
    wait_max: Annotated[float, typer.Option(help="Seconds that a request may wait for messages.")] = 20.0,
    read_timeout: Annotated[
        float, typer.Option(help="Seconds for a request to come, or some of its answer to be taken.")
    ] = 20.0,
    body_bytes_max: Annotated[int, typer.Option(help="Bytes that a request may have.")] = 16 * 1024 * 1024,
    token_cache: Annotated[float, typer.Option(help="Seconds that tokens and keys are remembered.")] = 2.0,
    statement_timeout: Annotated[float, typer.Option(help="Seconds that the database may take.")] = 30.0,
    grace: Annotated[float, typer.Option(help="Seconds that requests have to end after a signal.")] = 25.0,
    tls_certificate: Annotated[
        Path | None, typer.Option(help="A file with the certificate chain, PEM.", show_default=False)
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(help="A file with its key, PEM.", show_default=False)
    ] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    without_dashboard: Annotated[
        bool, typer.Option("--without-dashboard", help="Show no pages; only the routes answer.")
    ] = False,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Serve queues over HTTP, and pages for people.

    SIGTERM and Ctrl-C answer who waits for messages, finish what is under way within --grace, and end it; a
    second one ends it at once. It logs to stderr; --json prints the address it listens on, as one line.
    """
    level = logging.getLevelNamesMapping().get(log_level.upper())
    if level is None:
        raise errors.InvalidArgumentError(f"there is no log level {log_level!r}")
    try:
        from spanmq.dashboard import pages
        from spanmq.service import Settings
        from spanmq.service.server import serve as run
    except ModuleNotFoundError as error:
        raise errors.ServiceNotAvailableError(
            f"the service needs {error.name}, which is not installed", hint="pip install 'spanmq[service]'"
        ) from error

    def announce(found: str) -> None:
        if as_json:
            print(json.dumps({"event": "service_started", "address": found}), flush=True)  # noqa: T201
        else:
            say(f"spanmq: serving at {found}, its routes are described at {found}/docs")

    # uvicorn's own words are for who works on it.
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


@tokens.command("create")
def create(
    name: TokenName,
    queue: Annotated[
        list[str],
        typer.Option("--queue", "-q", help="A queue, or a pattern such as orders-*; may be given again."),
    ],
    verb: Annotated[
        list[str],
        typer.Option("--verb", "-v", help="send, receive, look or manage; may be given again."),
    ],
    expires: Expires = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Make a token and print its secret, which nobody can look up again."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        secret = opened.create_token(
            name, queues=queue, verbs=verb, expires=None if expires is None else delay_of(expires)
        )
    output.done(secret, name=name, token=secret)


@tokens.command("list")
def list_(dsn: Dsn = None, as_json: AsJson = False) -> None:
    """List the tokens, without their secrets."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        output.records(opened.list_tokens(), empty="no tokens")


@tokens.command("rotate")
def rotate(
    name: TokenName,
    overlap: Annotated[float, typer.Option(help="Seconds for which the secret before is good, too.")] = 0.0,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Give a token a new secret and print it."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        secret = opened.rotate_token(name, overlap=overlap)
    output.done(secret, name=name, token=secret)


@tokens.command("revoke")
def revoke(name: TokenName, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """End a token; services hear of it at once."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        existed = opened.revoke_token(name)
    output.done(
        f"revoked token {name}" if existed else f"there was no token {name}", name=name, existed=existed
    )
