"""Which commands there are, under which headings, and in which modules: each runs without the others.

Typer builds each command that it knows at every start: a hundred of them take three times as long as a send.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, Final

import typer

from spanmq import __version__
from spanmq.cli.failure import Command, Group, TwoWords


@dataclass(frozen=True, slots=True)
class Panel:
    """A heading of help, the module below it, and the commands that this registers, in their order."""

    title: str
    module: str
    commands: str


@dataclass(frozen=True, slots=True)
class Words:
    """Commands of two words, of which the first is the name: a Typer of their own in a module."""

    name: str
    module: str
    attribute: str
    panel: str


# In the order in which help lists them.
PANELS: Final = (
    Panel("Send", "sending", "send send-topic"),
    Panel(
        "Take",
        "taking",
        "receive read read-grouped read-grouped-rr read-grouped-head pop peek peek-archive set-vt",
    ),
    Panel("Settle", "settling", "ack ack-lease cancel delete archive"),
    Panel(
        "Fail, hold and pause",
        "delivering",
        "nack nack-lease reject reject-lease release release-lease extend hold pause resume status failures",
    ),
    Panel("Work", "work", "worker"),
    Panel("Service", "service", "serve"),
    Panel("Queues", "queues", "create-queue drop-queue purge list-queues metrics storage"),
    Panel("Policies", "policies", "get-policy set-policy"),
    Panel("Subscriptions", "subscriptions", "create-subscription list-subscriptions"),
    Panel("Pipeline runs", "pipeline_runs", "list-pipeline-runs"),
    Panel("Grants", "grants", "grant-queue revoke-queue list-grants"),
    Panel(
        "Streams",
        "receivers",
        "list-receivers adopt-receiver release-receiver reject-from-receiver forget-export",
    ),
    Panel(
        "Dead letters",
        "dead_letters",
        "dead-letters dead-letters-of count-dead-letters redrive redrive-message purge-dead-letters",
    ),
    Panel(
        "Categories",
        "categories",
        "classify set-category-rule drop-category-rule list-category-rules set-category-policy"
        " list-category-policies",
    ),
    Panel("Shards", "shards", "create-shards list-shards change-shards finish-shards drop-shards"),
    Panel(
        "Recurring messages",
        "schedules",
        "schedule unschedule list-schedules pause-schedule resume-schedule",
    ),
    Panel(
        "Topics and announcements",
        "topics",
        "bind-topic unbind-topic list-topic-bindings test-routing enable-notify-insert update-notify-insert"
        " disable-notify-insert list-notify-insert-throttles",
    ),
    Panel("Health", "health", "health statistics latest-statistics doctor top"),
    Panel("Look inside", "insides", "glance list-leases list-groups list-segments sum-statistics"),
    Panel("The database", "schema", "install upgrade verify sql uninstall adopt version"),
    Panel("Housekeeping", "housekeeping", "maintain"),
    Panel("Demo", "demonstration", "demo"),
    Panel("Load simulator", "simulation", "simulate"),
)
WORDS: Final = (
    Words("keys", "keys", "keys", "Service"),
    Words("encryption", "encryption", "encryption", "Service"),
    Words("tokens", "service", "tokens", "Service"),
    Words("pipeline", "pipeline", "commands", "Pipeline"),
)


def program(arguments: Sequence[str] = ()) -> typer.Typer:
    """Give the program; with arguments, as much of it as the command needs that they name.

    All of it for help and for completion, and for what is no command: Typer then suggests one that is.
    """
    wanted = set(arguments[:1])
    names = {name for panel in PANELS for name in panel.commands.split()} | {each.name for each in WORDS}
    wanted = wanted & names or names
    app = typer.Typer(
        cls=Group,
        no_args_is_help=True,
        help="A message queue inside PostgreSQL.",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_common)
    for panel in PANELS:
        if wanted.isdisjoint(panel.commands.split()):
            continue
        for command in _module(panel.module).commands.registered_commands:
            if name_of(command) in wanted:
                command.rich_help_panel = panel.title
                command.cls = Command
                app.registered_commands.append(command)
    for each in WORDS:
        if each.name in wanted:
            commands = getattr(_module(each.module), each.attribute)
            for command in commands.registered_commands:
                command.cls = Command
            app.add_typer(commands, name=each.name, cls=TwoWords, rich_help_panel=each.panel)
    return app


def name_of(command: Any) -> str:
    """Give the name of a command that a module has registered, as Typer gives it."""
    return str(command.name or command.callback.__name__.replace("_", "-"))


def _module(name: str) -> Any:
    return import_module(f"spanmq.cli.{name}")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"spanmq {__version__}")
        raise typer.Exit


def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Take what stands before the command."""
