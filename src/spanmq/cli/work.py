"""The worker: a program that receives, calls a handler for each message, and settles."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from spanmq import errors
from spanmq.cli.connect import address, prepared_address
from spanmq.cli.failure import INTERRUPTED, UsageError, say
from spanmq.cli.log_lines import EventLines, LogLevel, level_named, logging_lines
from spanmq.cli.option import AsJson, Dsn
from spanmq.cli.verbs import Commands

if TYPE_CHECKING:
    from spanmq.client import ShardedQueue
    from spanmq.tasks import Tasks
    from spanmq.worker.event import Event, Observer
    from spanmq.worker.handler import Handler
    from spanmq.worker.setting import WorkerOptions

commands = Commands()

Grace = Annotated[float, typer.Option(help="Seconds that handlers have to end after a signal.")]
Pooler = Annotated[
    bool, typer.Option("--pooler", help="The DSN leads to a pooler in transaction mode, such as PgBouncer.")
]
WorkerName = Annotated[
    str | None,
    typer.Option(
        "--name", help="The worker's name in records of failures.", show_default="host:process:random"
    ),
]
MetricsPort = Annotated[
    int | None,
    typer.Option(
        help="Serve /metrics, /healthz and /readyz at this port; 0: any that is free.", min=0, max=65_535
    ),
]
MetricsHost = Annotated[
    str, typer.Option(help="The address that they listen on; 0.0.0.0 or :: for other machines.")
]
UntilEmpty = Annotated[
    bool,
    typer.Option("--until-empty", help="End when no message is visible, and print how many were handled."),
]
Modules = Annotated[
    list[str] | None,
    typer.Argument(metavar="[MODULE]...", help="Modules that register further tasks, such as shop.billing."),
]


class StopReason:
    """Remembers why a worker stops."""

    reason: str | None = None

    def __call__(self, event: Event) -> None:
        """Record the reason of a stop."""
        self.reason = getattr(event, "reason", self.reason)

    def hears_routine(self) -> bool:
        """Return False: events of single messages are not needed."""
        return False


@commands.command()
def worker(
    ctx: typer.Context,
    handler: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:HANDLER",
            help="The function, such as shop.jobs:ship, or the tasks, such as shop.tasks:tasks.",
        ),
    ],
    modules: Modules = None,
    queue: Annotated[
        list[str] | None,
        typer.Option("--queue", "-q", help="A queue to receive from; may be given again. Tasks have theirs."),
    ] = None,
    shards: Annotated[
        str | None,
        typer.Option(
            metavar="all|NAMES",
            help="The queue is a sharded one: receive from all its shards, or from these (a,b).",
        ),
    ] = None,
    server: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=DSN", help="A server of the shards, in place of --dsn; may be given again."
        ),
    ] = None,
    concurrency: Annotated[int, typer.Option(help="Number of handlers that run at once.")] = 10,
    batch: Annotated[int, typer.Option(help="Maximum number of messages of one call.")] = 250,
    in_batches: Annotated[
        bool, typer.Option("--in-batches", help="The handler takes a list of messages.")
    ] = False,
    lease: Annotated[
        float | None,
        typer.Option(help="Seconds of a lease, extended as needed.", show_default="the queue's policy"),
    ] = None,
    lease_max: Annotated[float, typer.Option(help="Seconds after which it is not extended.")] = 3600.0,
    handler_timeout: Annotated[float | None, typer.Option(help="Seconds that a handler may take.")] = None,
    grace: Grace = 25.0,
    pooler: Pooler = False,
    name: WorkerName = None,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
    no_breaker: Annotated[
        bool, typer.Option("--no-breaker", help="Go on receiving while every message fails.")
    ] = False,
    processes: Annotated[
        int | None,
        typer.Option(
            help="Number of processes for tasks with process=True.", show_default="one for each processor"
        ),
    ] = None,
    until_empty: UntilEmpty = False,
    create_queues: Annotated[
        bool, typer.Option("--create-queues", help="Create the queues of the tasks that are missing.")
    ] = False,
    reload: Annotated[
        bool, typer.Option("--reload", help="For development: start again when a Python file here changes.")
    ] = False,
    log_level: LogLevel = "info",
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Receive messages, call a handler for each, and settle them.

    After SIGTERM or Ctrl-C it receives no more, finishes its messages within --grace, and releases the rest;
    a second one ends it at once. It logs to stderr; --json prints every event, a line each, too.

    $ spanmq worker shop.jobs:ship --queue orders --concurrency 20
    $ spanmq worker shop.tasks:tasks shop.billing --create-queues
    """
    if reload:
        _run_again_on_changes()
        return
    from spanmq.worker import Worker

    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(line_buffering=True)  # what handlers print is seen at once, in a pipe too
    # A handler is more often in the current folder than in an installed package.
    sys.path.insert(0, "")
    tasks, function = program_of(handler, modules or [], takes_batches=in_batches)
    if tasks is None:
        _check_function(queue, modules, create_queues=create_queues)
    elif shards is not None or in_batches:
        raise errors.InvalidArgumentError("--shards and --in-batches are for a function, not for tasks")
    else:
        tasks.creates_queues |= create_queues
    if tasks is not None and tasks.clients.dsn:
        # Where they are sent to, unless the command names another database.
        source = ctx.get_parameter_source("dsn")
        dsn = dsn if source is not None and source.name == "COMMANDLINE" else tasks.clients.address()
    count = 0
    with ExitStack() as stack:
        stopped, observers = stack.enter_context(
            watched(log_level, metrics_port, metrics_host, as_json=as_json)
        )
        own = queue or ([] if tasks is None else [*tasks.queues])
        queues, where = stack.enter_context(_source(own, shards, server or [], dsn))
        settings: WorkerOptions = {
            **where,
            "name": name,
            "observers": observers,
            "concurrency": concurrency,
            "batch": batch,
            "in_batches": in_batches,
            "lease": lease,
            "lease_max": lease_max,
            "handler_timeout": handler_timeout,
            "grace": grace,
            "pooler": pooler,
            "until_empty": until_empty,
            "processes": processes,
        }
        if no_breaker:
            settings["breaker"] = None
        if tasks is not None and isinstance(queues, list):
            count = tasks.run(queues, **settings)
        elif function is not None:
            count = Worker(queues, function, **settings).run()
    report_end(stopped, count if until_empty and not as_json else None)


@contextmanager
def watched(
    log_level: str, metrics_port: int | None, metrics_host: str, *, as_json: bool
) -> Iterator[tuple[StopReason, list[Observer]]]:
    """Log, count and print what a worker does while the block runs; yield its observers, and what it stopped for."""
    from spanmq.worker import log
    from spanmq.worker.condition import monitored

    stopped = StopReason()
    with ExitStack() as stack:
        stack.enter_context(logging_lines(level_named(log_level)))
        observers: list[Observer] = [
            stopped,
            log.write,
            *stack.enter_context(monitored(metrics_port, metrics_host)),
        ]
        if as_json:
            lines = EventLines(sys.stdout.fileno())
            stack.callback(lines.close)
            observers.append(lines)
        yield stopped, observers


def report_end(stopped: StopReason, count: int | None) -> None:
    """Print how many messages were handled, if that is asked for; exit as interrupted after Ctrl-C."""
    if count is not None:
        typer.echo(f"handled: {count}")
    if stopped.reason == "SIGINT":
        say("spanmq: interrupted")
        raise typer.Exit(INTERRUPTED)


def program_of(
    handler: str, modules: list[str], *, takes_batches: bool
) -> tuple[Tasks | None, Handler | None]:
    """Return the tasks of a program, with those of the modules, or its function as a handler."""
    from spanmq.worker.handler import find, load, look_at

    if handler in ("stop", "drain"):  # which can't be a handler's name
        raise UsageError("To stop a worker that runs elsewhere: spanmq queue stop-worker WORKER")
    target = find(handler)
    tasks = _tasks_of(target)
    if tasks is None:
        return None, look_at(target, takes_batches=takes_batches)
    for module in modules:
        # It may be spelled as an object, too, which is the same one: it has what the module registered.
        if ":" in module and find(module) is not tasks:
            raise errors.InvalidArgumentError(
                f"{module} is another object than {handler}",
                hint="A worker runs the tasks of one Tasks: register them there, or start two workers.",
            )
        load(module.partition(":")[0])
    tasks.load()
    return tasks, None


def _check_function(queue: list[str] | None, modules: list[str] | None, *, create_queues: bool) -> None:
    if not queue:
        raise errors.InvalidArgumentError(
            "a function needs --queue", hint="Only tasks have queues of their own."
        )
    if modules or create_queues:
        raise errors.InvalidArgumentError("further modules and --create-queues are for tasks only")


def _run_again_on_changes() -> None:
    """Run the same command in a process of its own, and again after each change, until Ctrl-C."""
    try:
        from watchfiles import PythonFilter, run_process
    except ImportError as error:
        raise errors.ExtraNotInstalledError(
            "--reload needs the package watchfiles", extra="reload"
        ) from error
    command = [
        sys.executable,
        "-m",
        "spanmq.cli",
        *(argument for argument in sys.argv[1:] if argument != "--reload"),
    ]
    run_process(".", target=shlex.join(command), target_type="command", watch_filter=PythonFilter())


def _tasks_of(target: object) -> Tasks | None:
    """Return the object if it is a program's tasks, after importing their module."""
    module = sys.modules.get("spanmq.tasks")
    return target if module is not None and isinstance(target, module.Tasks) else None


@contextmanager
def _source(
    queues: list[str], shards: str | None, servers: list[str], dsn: str | None
) -> Iterator[tuple[list[str] | ShardedQueue, WorkerOptions]]:
    """Yield the queues that the worker receives from, and its options."""
    if shards is None:
        if servers:
            raise errors.InvalidArgumentError("--server requires --shards")
        with prepared_address(dsn) as conninfo:
            yield queues, {"dsn": conninfo}
        return
    from spanmq.client import Client, ShardedQueue

    if len(queues) != 1:
        raise errors.InvalidArgumentError(f"--shards requires one --queue, got {', '.join(queues)}")
    with ExitStack() as stack:
        addresses = dict(_server_of(text) for text in servers)
        if not servers:
            addresses[""] = stack.enter_context(address(dsn))
        # They only carry the addresses: the worker connects by itself.
        clients = {name: Client(conninfo) for name, conninfo in addresses.items()}
        for client in clients.values():
            stack.callback(client.close)
        yield ShardedQueue(queues[0], clients), {"shards": None if shards == "all" else shards.split(",")}


def _server_of(text: str) -> tuple[str, str]:
    name, equals, dsn = text.partition("=")
    if not equals or not name or not dsn:
        # The text may have a password.
        raise errors.InvalidArgumentError("--server must be NAME=DSN")
    return name, dsn
