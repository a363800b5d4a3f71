"""All commands, in the order in which help lists them."""

from typing import Annotated

import typer

from spanmq import __version__
from spanmq.cli import (
    categories,
    dead_letters,
    delivering,
    demonstration,
    encryption,
    grants,
    health,
    housekeeping,
    insides,
    keys,
    pipeline,
    pipeline_runs,
    policies,
    queues,
    receivers,
    schedules,
    schema,
    sending,
    service,
    settling,
    shards,
    simulation,
    subscriptions,
    taking,
    topics,
    work,
)
from spanmq.cli.failure import Group

app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    help="A message queue inside PostgreSQL.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

PANELS = {
    "Send": sending,
    "Take": taking,
    "Settle": settling,
    "Fail, hold and pause": delivering,
    "Work": work,
    "Service": service,
    "Queues": queues,
    "Policies": policies,
    "Subscriptions": subscriptions,
    "Pipeline runs": pipeline_runs,
    "Grants": grants,
    "Streams": receivers,
    "Dead letters": dead_letters,
    "Categories": categories,
    "Shards": shards,
    "Recurring messages": schedules,
    "Topics and announcements": topics,
    "Health": health,
    "Look inside": insides,
    "The database": schema,
    "Housekeeping": housekeeping,
    "Demo": demonstration,
    "Load simulator": simulation,
}

for panel, module in PANELS.items():
    for command in module.commands.registered_commands:
        command.rich_help_panel = panel
        app.registered_commands.append(command)

app.add_typer(keys.keys, name="keys", rich_help_panel="Service")
app.add_typer(encryption.encryption, name="encryption", rich_help_panel="Service")
app.add_typer(service.tokens, name="tokens", rich_help_panel="Service")
app.add_typer(pipeline.commands, name="pipeline", rich_help_panel="Pipeline")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"spanmq {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Take what stands before the command."""
