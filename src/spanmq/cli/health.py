"""How queues and the server are: at a moment, over the last hours, and live."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from spanmq.cli.connect import client
from spanmq.cli.failure import FAILED, describe, say
from spanmq.cli.housekeeping import PASSING
from spanmq.cli.interrupt import Stop
from spanmq.cli.option import AsJson, Dsn, QueueName
from spanmq.cli.output import Output, fields, state_of
from spanmq.message import QueueHealth

if TYPE_CHECKING:
    from rich.table import Table

    from spanmq.client import Client

commands = typer.Typer()

# Of a table for a person; JSON has all fields.
HEALTH_COLUMNS: Final = (
    "queue",
    "backlog",
    "visible",
    "in_flight",
    "delayed",
    "failed",
    "dead",
    "dead_per_minute",
    "oldest_ready_seconds",
    "oldest_lease_seconds",
    "receivers",
    "waiting_sessions",
    "oldest_snapshot_seconds",
)
STATISTICS_COLUMNS: Final = (
    "sampled_at",
    "sent",
    "received",
    "settled",
    "failed",
    "dead",
    "backlog",
    "in_flight",
    "oldest_ready_seconds",
)
# Of the live table, which fits into 80 columns.
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
    "receivers": "at\nwork",
    "waiting_sessions": "lock\nwaits",
}
# What a snapshot of this age keeps is worth a look.
SNAPSHOT_SECONDS: Final = 300.0
COLORS: Final = {"ok": "green", "warning": "yellow", "problem": "red"}


@commands.command()
def health(dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Tell how each queue is: messages by state, ages, receivers, who waits for locks."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        rows = [fields(each) for each in opened.health()]
    output.queues(rows if as_json else map(_rounded, rows), columns=HEALTH_COLUMNS)


@commands.command()
def statistics(
    queue: QueueName,
    seconds: Annotated[float, typer.Option(help="How far to look back; three days are kept.")] = 3600.0,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Tell what a queue did, minute by minute, as maintain() sampled it."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        rows = [fields(each) for each in opened.statistics(queue, seconds=seconds)]
    output.records(
        rows if as_json else map(_rounded, rows),
        columns=STATISTICS_COLUMNS,
        empty="no samples: nothing happened, or nobody calls maintain()",
    )


@commands.command()
def latest_statistics(dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Tell how each queue stood at its last sample; costs the same whatever waits there."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        rows = [fields(each) for each in opened.latest_statistics()]
    output.queues(rows if as_json else map(_rounded, rows), columns=("queue", *STATISTICS_COLUMNS))


@commands.command()
def doctor(
    connections: Annotated[
        int | None,
        typer.Option(help="How many connections all pools may open together.", show_default=False),
    ] = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Check a server for its job, and say what to do; exits with 1 when there is a problem."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        findings = opened.doctor(connections=connections)
    if as_json:
        output.records(findings)
    else:
        for each in findings:
            typer.secho(f"{each.level:8}", fg=COLORS.get(each.level), nl=False)
            typer.echo(f"{each.check}: {each.finding}")
            if each.advice is not None:
                typer.echo(f"{'':8}→ {each.advice}")
    if any(each.level == "problem" for each in findings):
        raise typer.Exit(FAILED)


@commands.command()
def top(
    every: Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds between two looks.")] = 2.0,
    times: Annotated[
        int | None, typer.Option(min=1, help="End after so many looks.", show_default=False)
    ] = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Watch the queues until Ctrl-C: a live table on a terminal, else a table or JSON lines a look."""
    output = Output(as_json=as_json)
    with Stop() as stop, client(dsn) as opened:
        if sys.stdout.isatty() and not as_json:
            _watch(opened, stop, every, times)
        else:
            looks = 0
            while not stop.is_set():
                rows = [fields(each) for each in opened.health()]
                output.queues(rows if as_json else map(_rounded, rows), columns=HEALTH_COLUMNS)
                looks += 1
                if looks == times or stop.wait(every):
                    break


def _watch(opened: "Client", stop: Stop, every: float, times: int | None) -> None:
    from rich.console import Console
    from rich.live import Live

    before: Sequence[QueueHealth] = ()
    looks = 0
    with Live(console=Console(), auto_refresh=False, screen=times is None) as live:
        while not stop.is_set():
            try:
                now = opened.health()
            except PASSING as error:
                if not looks:
                    raise
                say(describe(error))
            else:
                live.update(_table(now, before), refresh=True)
                before = now
            looks += 1
            if looks == times or stop.wait(every):
                break


def _table(now: Sequence[QueueHealth], before: Sequence[QueueHealth]) -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    held = max((each.oldest_snapshot_seconds or 0 for each in now), default=0)
    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=0,
        caption=f"oldest snapshot {held:.0f} s; Ctrl-C ends",
        caption_style="red" if held > SNAPSHOT_SECONDS else "dim",
    )
    for name, heading in HEADINGS.items():
        table.add_column(heading, justify="left" if name == "queue" else "right", no_wrap=True)
    past = {each.queue: _rounded(fields(each)) for each in before}
    for each in now:
        row = _rounded(fields(each))
        cells = []
        for name in HEADINGS:
            value = row[name]
            has_changed = each.queue in past and value != past[each.queue][name]
            text = f"{value:,}" if isinstance(value, int | float) else str(value or "-")
            if name == "queue" and (state := state_of(row)):
                text += f" ({state})"
            style = "red" if name.startswith("dead") and value else "bold" if has_changed else ""
            cells.append(Text(text, style=style))
        table.add_row(*cells)
    return table


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, 1) if isinstance(value, float) else value for name, value in row.items()}
