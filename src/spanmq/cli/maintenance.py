"""The commands for the operation of a server: maintain, doctor, top, psql."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from spanmq.cli.connect import address, client
from spanmq.cli.failure import FAILED, INTERRUPTED, describe, say
from spanmq.cli.interrupt import Stop, handled
from spanmq.cli.option import AsJson, Dsn
from spanmq.cli.output import Output, fitting, state_of
from spanmq.cli.queues import HEALTH_COLUMNS, health_row
from spanmq.cli.verbs import Commands
from spanmq.errors import TEMPORARY

if TYPE_CHECKING:
    from rich.console import JustifyMethod
    from rich.table import Table

    from spanmq.client import Client
    from spanmq.model import QueueHealth

commands = Commands()

# The columns of the live table, of which a narrow terminal shows those that fit.
HEADINGS: Final = {
    "queue": "queue",
    "backlog": "backlog",
    "visible": "visible",
    "in_flight": "in\nflight",
    "delayed": "delayed",
    "failed": "failed",
    "dead": "dead",
    "dead_per_minute": "dead\n/min",
    "oldest_ready_seconds": "ready\ns",
    "oldest_lease_seconds": "lease\ns",
    "receivers": "recei-\nvers",
    "waiting_sessions": "lock\nwaits",
}
# The order in which they leave a narrow terminal.
LEAVING: Final = (
    *("waiting_sessions", "receivers", "oldest_lease_seconds", "dead_per_minute", "delayed", "failed"),
    *("in_flight", "backlog", "oldest_ready_seconds", "visible", "dead"),
)
# What stays of a long name of a queue with its state.
QUEUE_WIDTH_MIN: Final = 20
# A step of this budget takes far less than the time limit of a statement.
BRIEF_BUDGET: Final = 100
# A snapshot of this age is worth a warning: vacuum can remove nothing that is newer.
SNAPSHOT_SECONDS: Final = 300.0
COLORS: Final = {"ok": "green", "warning": "yellow", "problem": "red"}


@commands.command()
def maintain(
    budget: Annotated[int, typer.Option(help="Maximum work of one step, which is a transaction.")] = 10,
    every: Annotated[
        float | None,
        typer.Option(min=0.01, max=86_400, help="Continue indefinitely, with pauses of this many seconds."),
    ] = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Run maintenance until no work is left: create, truncate and drop segments, move bounds.

    With --every it continues until Ctrl-C or SIGTERM, which end it after the current step. Clients run
    maintenance in the background; several at once do no harm.

    $ spanmq maintain
    $ spanmq maintain --every 1
    """
    output = Output(as_json=as_json)
    with Stop() as stop, client(dsn, is_brief=budget <= BRIEF_BUDGET) as opened:
        is_first = True
        while not stop.is_set():
            try:
                steps = opened.admin.maintain(budget)
            except TEMPORARY as error:
                if every is None or is_first:
                    raise
                say(describe(error))
                steps = []
            is_first = False
            for step in steps:
                output.done(
                    " ".join(part for part in (step.queue, step.action, step.detail) if part),
                    queue=step.queue,
                    action=step.action,
                    detail=step.detail,
                )
            if not steps and (every is None or stop.wait(every)):
                break
    if stop.was_interrupted:
        say("spanmq: interrupted")
        raise typer.Exit(INTERRUPTED)


@commands.command()
def doctor(
    connections: Annotated[
        int | None, typer.Option(help="Number of connections that all pools may open together.")
    ] = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Check a server, and show what to do; exits with 1 if there is a problem.

    $ spanmq doctor --connections 200
    """
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        findings = opened.health.doctor(connections=connections)
    if as_json:
        output.records(findings)
    else:
        for finding in findings:
            typer.secho(f"{finding.level:8}", fg=COLORS.get(finding.level), nl=False)
            typer.echo(f"{finding.check}: {finding.finding}")
            if finding.advice is not None:
                typer.echo(f"{'':8}→ {finding.advice}")
    if any(finding.level == "problem" for finding in findings):
        raise typer.Exit(FAILED)


@commands.command()
def top(
    every: Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds between two queries.")] = 2.0,
    times: Annotated[int | None, typer.Option(min=1, help="End after that many queries.")] = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Watch the queues until Ctrl-C: a live table on a terminal, otherwise a table or JSON lines each time.

    $ spanmq top --every 5
    """
    output = Output(as_json=as_json)
    with Stop() as stop, client(dsn) as opened:
        surveys = _surveys(opened, stop, every, times)
        if sys.stdout.isatty() and not as_json:
            _show_live(surveys, screen=times is None)
        else:
            for survey in surveys:
                output.records(map(health_row, survey), columns=HEALTH_COLUMNS, empty="no queues")


@commands.command(passes_on=True)
def psql(ctx: typer.Context, dsn: Dsn = None) -> None:
    """Run psql on the database; the other arguments are psql's own.

    The password is passed in the environment, not among the arguments, which other users can see.

    $ spanmq psql
    $ spanmq psql --command "select * from pgmq.list_queues()"
    """
    program = shutil.which("psql")
    if program is None:
        from spanmq.embedded.binaries import find_binaries

        program = str(find_binaries() / "psql")
    # Ctrl-C is psql's: it cancels a query, and does not end the program.
    with handled(lambda *_: None, signal.SIGINT), address(dsn) as conninfo:
        variables, rest = _variables(conninfo)
        done = subprocess.run(
            [program, *([rest] if rest else []), *ctx.args], env={**os.environ, **variables}, check=False
        )
    raise typer.Exit(done.returncode)


def _variables(dsn: str) -> tuple[dict[str, str], str]:
    """Return libpq's variables for a DSN, and a DSN for the parameters without a variable."""
    from psycopg import ProgrammingError, pq
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    from spanmq.client.dsn import unreadable

    names = {
        option.keyword.decode(): option.envvar.decode()
        for option in pq.Conninfo.get_defaults()
        if option.envvar
    }
    try:
        parts = conninfo_to_dict(dsn)
    except ProgrammingError as error:
        raise unreadable(error) from None
    variables = {names[keyword]: str(value) for keyword, value in parts.items() if keyword in names}
    rest = {keyword: value for keyword, value in parts.items() if keyword not in names}
    return variables, make_conninfo("", **rest)


def _surveys(
    opened: "Client", stop: Stop, every: float, times: int | None
) -> Iterator[Sequence["QueueHealth"]]:
    """Query again and again; after the first query, report temporary errors and continue."""
    queries = 0
    while not stop.is_set():
        try:
            survey = opened.health.now()
        except TEMPORARY as error:
            if not queries:
                raise
            say(describe(error))
        else:
            yield survey
        queries += 1
        if queries == times or stop.wait(every):
            break


def _show_live(surveys: Iterable[Sequence["QueueHealth"]], *, screen: bool) -> None:
    from rich.console import Console
    from rich.live import Live

    before: Sequence[QueueHealth] = ()
    console = Console()
    with Live(console=console, auto_refresh=False, screen=screen) as live:
        for now in surveys:
            live.update(_table(now, before, console.width), refresh=True)
            before = now


def _table(now: "Sequence[QueueHealth]", before: "Sequence[QueueHealth]", width: int) -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    held = max((queue_health.oldest_snapshot_seconds or 0 for queue_health in now), default=0)
    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=0,
        caption=f"oldest snapshot {held:.0f} s; Ctrl-C ends",
        caption_style="red" if held > SNAPSHOT_SECONDS else "dim",
    )
    rows = [_rounded(health_row(queue_health)) for queue_health in now]
    texts = {name: [_text_of(name, row) for row in rows] for name in HEADINGS}
    # Between two columns is a space.
    widths = {
        name: 1 + max(map(len, (*HEADINGS[name].split("\n"), *column))) for name, column in texts.items()
    }
    widths["queue"] = min(widths["queue"], QUEUE_WIDTH_MIN)
    order = ["queue", *reversed(LEAVING)]
    shown = {order[index] for index in fitting([widths[name] for name in order], width, {0})}
    names = [name for name in HEADINGS if name in shown]
    # The name is cut, and a number never.
    widths["queue"] = max(QUEUE_WIDTH_MIN, width - sum(widths[name] for name in names if name != "queue"))
    for name in names:
        is_queue = name == "queue"
        justify: JustifyMethod = "left" if is_queue else "right"
        table.add_column(
            HEADINGS[name],
            justify=justify,
            no_wrap=True,
            overflow="ellipsis",
            min_width=None if is_queue else widths[name] - 1,
            max_width=widths[name] - 1 if is_queue else None,
        )
    past = {queue_health.queue: _rounded(health_row(queue_health)) for queue_health in before}
    for number, row in enumerate(rows):
        cells = []
        for name in names:
            has_changed = row["queue"] in past and row[name] != past[row["queue"]][name]
            style = "red" if name.startswith("dead") and row[name] else "bold" if has_changed else ""
            cells.append(Text(texts[name][number], style=style))
        table.add_row(*cells)
    return table


def _text_of(name: str, row: dict[str, Any]) -> str:
    value = row[name]
    text = f"{value:,}" if isinstance(value, int | float) else str(value or "-")
    state = state_of(row) if name == "queue" else None
    return f"{text} ({state})" if state else text


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, 1) if isinstance(value, float) else value for name, value in row.items()}
