"""The noun `schema`, and `version`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from spanmq.cli.connect import client, connection
from spanmq.cli.failure import FAILED, say
from spanmq.cli.option import AsJson, DryRun, Dsn, Yes, confirm
from spanmq.cli.output import Output, fields, number_of
from spanmq.cli.progress import awaited
from spanmq.cli.verbs import Commands
from spanmq.version import __version__

schema = Commands()
commands = Commands()

FollowTableGrants = Annotated[
    bool, typer.Option("--follow-table-grants", help="Privileges on pgmq.q_<name> count as verbs.")
]


@schema.command()
def install(dsn: Dsn = None, follow_table_grants: FollowTableGrants = False, as_json: AsJson = False) -> None:
    """Install the schema, or upgrade it to this version; does nothing if it is up to date.

    $ spanmq schema install --dsn postgresql://app@db/app
    """
    from spanmq import schema as manager

    output = Output(as_json=as_json)
    with connection(dsn) as opened, awaited("installing"):
        installed = manager.install(opened, follow_table_grants=follow_table_grants)
    what = "installed" if installed.functions_applied else "is already installed"
    output.done(f"spanmq {installed.version} {what}", **fields(installed))


@schema.command()
def upgrade(dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Upgrade an installed schema to this version and recreate all functions, which repairs them.

    $ spanmq schema upgrade
    """
    from spanmq import schema as manager

    output = Output(as_json=as_json)
    with connection(dsn) as opened, awaited("upgrading"):
        installed = manager.upgrade(opened)
    applied = f", applied {', '.join(installed.migrations)}" if installed.migrations else ""
    output.done(f"the schema is of spanmq {installed.version}{applied}", **fields(installed))


@schema.command()
def verify(dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Compare the schema with what this version installs; exit code 1 if they differ.

    $ spanmq schema verify
    """
    from spanmq import schema as manager

    output = Output(as_json=as_json)
    with connection(dsn) as opened:
        differences = manager.verify(opened)
    output.records(differences, empty=f"everything is as spanmq {__version__} installs it")
    if differences:
        raise typer.Exit(FAILED)


@schema.command()
def sql(
    from_version: Annotated[
        str | None, typer.Option("--from", metavar="VERSION", help="Upgrade the schema of this version.")
    ] = None,
    transaction: Annotated[
        bool, typer.Option("--transaction/--no-transaction", help="With begin and commit.")
    ] = True,
) -> None:
    """Print the installation as plain SQL, for psql or another migration tool.

    $ spanmq schema sql | psql --set ON_ERROR_STOP=1 app
    """
    from spanmq import schema as manager

    sys.stdout.write(manager.sql(from_version, transaction=transaction))


@schema.command()
def uninstall(
    dsn: Dsn = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also if it holds messages, or objects of your own.")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Drop the schemas; refuses to lose messages unless --force is given.

    $ spanmq schema uninstall --yes
    """
    from spanmq import schema as manager

    output = Output(as_json=as_json)
    with connection(dsn) as opened:
        lost = " with all queues and messages" if force else ""
        confirm(
            f"Drop the schemas pgmq, spanmq, spanmq_call and spanmq_core{lost} from {opened.info.dbname}?",
            yes=yes,
        )
        manager.uninstall(opened, force=force)
    output.done("uninstalled", uninstalled=True)


@schema.command()
def adopt(
    dsn: Dsn = None,
    dry_run: DryRun = False,
    lock_timeout: Annotated[float, typer.Option(help="Seconds to wait for each of PGMQ's tables.")] = 30.0,
    follow_table_grants: FollowTableGrants = False,
    as_json: AsJson = False,
) -> None:
    """Take over the queues of PGMQ in this database, in one transaction: messages, ids, archives, topics.

    $ spanmq schema adopt --dry-run
    """
    from spanmq.schema import adopt as take_over

    output = Output(as_json=as_json)
    with connection(dsn) as opened, awaited("looking" if dry_run else "taking over"):
        report = take_over.adopt(
            opened,
            dry_run=dry_run,
            lock_timeout_seconds=lock_timeout,
            follow_table_grants=follow_table_grants,
        )
    if as_json:
        output.done("", **fields(report))
    else:
        output.records(report.queues, empty="no queues")
        done = "would take over" if dry_run else "took over"
        messages = number_of(report.messages, "message")
        output.done(f"{done} {number_of(len(report.queues), 'queue')} with {messages}")
        for name in report.kept:
            output.done(f"kept: {name}")
        for obstacle in report.obstacles:
            output.done(f"in the way: {obstacle.object}: {obstacle.reason}")
    if report.obstacles:
        raise typer.Exit(FAILED)


@schema.command()
def extension(
    dsn: Dsn = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            help="Write the extension's files for a server without PGMQ's: what pg_config --sharedir prints.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Register an empty extension pgmq in the database: `create extension if not exists pgmq` then passes.

    $ spanmq schema extension --folder "$(pg_config --sharedir)"
    """
    from spanmq import schema as manager

    output = Output(as_json=as_json)
    if folder is not None:
        written = manager.write_extension(folder)
        output.done(f"wrote {' and '.join(map(str, written))}", written=[str(path) for path in written])
        say(
            f"hint: unless {folder} is what pg_config --sharedir prints, PostgreSQL 18 and newer need the "
            f"setting extension_control_path = '{folder.absolute()}:$system'"
        )
        return
    with connection(dsn) as opened, awaited("registering"):
        manager.register_extension(opened)
    output.done("the extension pgmq is registered", registered=True)


@commands.command()
def version(dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Print the version of this program and, if a database is named, of the schema in it.

    $ spanmq version --json
    """
    output = Output(as_json=as_json)
    if dsn is None:
        output.done(f"spanmq {__version__}", version=__version__)
        return
    with client(dsn) as opened:
        flavour = opened.admin.flavour()
        installed = opened.admin.version() if flavour == "spanmq" else None
    holds = {"spanmq": f"schema {installed}", "upstream": "upstream PGMQ", "none": "no schema"}[flavour]
    output.done(f"spanmq {__version__}, {holds}", version=__version__, flavour=flavour, schema=installed)
    if installed not in (None, __version__):
        say("hint: spanmq schema upgrade brings the schema to this version")
