"""The command `push`: a worker that sends each message as a signed webhook."""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from spanmq.cli.connect import prepared_address
from spanmq.cli.failure import UsageError
from spanmq.cli.log_lines import LogLevel
from spanmq.cli.option import AsJson, Dsn, QueueName
from spanmq.cli.verbs import Commands
from spanmq.cli.work import (
    Grace,
    MetricsHost,
    MetricsPort,
    Pooler,
    UntilEmpty,
    WorkerName,
    report_end,
    watched,
)
from spanmq.errors import InvalidArgumentError, MissingPrivilegeError

if TYPE_CHECKING:
    from spanmq.push import Endpoint
    from spanmq.push.endpoint import EndpointsFile

commands = Commands()

SECRETS: Final = "SPANMQ_PUSH_SECRETS"


@commands.command()
def push(
    queue: QueueName,
    url: Annotated[
        str | None,
        typer.Argument(
            metavar="[URL]",
            envvar="SPANMQ_PUSH_URL",
            show_envvar=True,
            help="The endpoint. In the environment, other users of the machine do not see it.",
        ),
    ] = None,
    endpoints: Annotated[
        Path | None,
        typer.Option(help="A TOML file of endpoints by the group of a message, in place of a URL."),
    ] = None,
    unsigned: Annotated[
        bool, typer.Option("--unsigned", help=f"Do not sign requests: {SECRETS} is not set.")
    ] = False,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NETWORK",
            help="A private network that may be sent to, such as 10.1.0.0/16; may be given again.",
        ),
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds that a request may take.", min=0.1)] = 15.0,
    concurrency: Annotated[int, typer.Option(help="How many requests are made at once.")] = 10,
    grace: Grace = 25.0,
    pooler: Pooler = False,
    name: WorkerName = None,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
    until_empty: UntilEmpty = False,
    log_level: LogLevel = "info",
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Send each message of a queue as a webhook, signed as Standard Webhooks has it.

    SPANMQ_PUSH_SECRETS has the secrets, several of them while the receiver changes to a new one. The answer settles
    the message: 2xx acks it, 410 makes it a dead letter, any other is retried by the queue's policy, after the
    Retry-After of a 429 or 503. Redirects are not followed. With --endpoints the queue must be ordered: an endpoint
    that fails then holds its own messages only.

    $ spanmq push orders https://shop.example/hooks
    $ spanmq push hooks --endpoints /etc/shop/endpoints.toml
    """
    from spanmq.push import push_worker

    target = _target(url, endpoints, unsigned=unsigned)
    with ExitStack() as stack:
        stopped, observers = stack.enter_context(
            watched(log_level, metrics_port, metrics_host, as_json=as_json)
        )
        conninfo = stack.enter_context(prepared_address(dsn))
        if endpoints is not None:
            _check_ordered(queue, conninfo)
        worker = push_worker(
            queue,
            target,
            allow=allow or (),
            timeout=timeout,
            dsn=conninfo,
            concurrency=concurrency,
            grace=grace,
            pooler=pooler,
            name=name,
            until_empty=until_empty,
            observers=observers,
        )
        count = worker.run()
    report_end(stopped, count if until_empty and not as_json else None)


def _target(url: str | None, endpoints: Path | None, *, unsigned: bool) -> Endpoint | EndpointsFile:
    """Return the endpoint of the command, or those of its file."""
    from spanmq.push.endpoint import Endpoint, EndpointsFile

    if (url is None) == (endpoints is None):
        raise UsageError("Name either a URL or --endpoints.")
    if endpoints is not None:
        if unsigned:
            raise UsageError("--unsigned is for a URL: the file has the secrets of each endpoint.")
        return EndpointsFile(endpoints)
    secrets = os.environ.get(SECRETS, "").split()
    if bool(secrets) == unsigned:
        raise InvalidArgumentError(
            f"{SECRETS} is set, and --unsigned, too" if unsigned else f"{SECRETS} has no secret to sign with",
            hint="For example whsec_$(openssl rand -base64 32); --unsigned sends requests without a signature.",
        )
    return Endpoint(url or "", secrets)


def _check_ordered(queue: str, dsn: str) -> None:
    """Raise InvalidArgumentError for a queue whose groups do not wait for their first message."""
    from spanmq.client import Client

    # Without the right to look, the command trusts its user.
    with Client(dsn, pool_size=2) as client, suppress(MissingPrivilegeError):
        if not client.queues.policy(queue).ordered:
            raise InvalidArgumentError(
                f"the queue {queue} is not ordered: an endpoint that is down would hold all others",
                hint=f"spanmq policy set {queue} ordered=true",
            )
