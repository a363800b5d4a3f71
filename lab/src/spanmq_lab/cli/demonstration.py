"""The demo."""

import contextlib
import os
import shutil
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from spanmq.cli.parts import FAILED, AsJson, Commands, Dsn, Output, fields, prepared_address, print_table, say
from spanmq.errors import ExtraNotInstalledError, InvalidArgumentError

commands = Commands()


@commands.command()
def demo(
    rows: Annotated[int, typer.Option(min=1, help="Number of flights.")] = 336_776,
    consumers: Annotated[int, typer.Option(min=1, max=32, help="Number of concurrent consumers.")] = 3,
    queue: Annotated[str, typer.Option(help="The queue, which must not exist.")] = "spanmq_demo_flights",
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the queue with its archive, to look at it.")
    ] = False,
    export: Annotated[
        Path | None,
        typer.Option(help="A folder: Spark exports the archive into a lake in it, as Parquet."),
    ] = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Send the 336,776 flights that left New York in 2013 through a queue, and check that each arrived.

    Without a database it runs on a temporary PostgreSQL server; with --keep, on the embedded server. Exit
    code 1 if a check fails.

    $ spanmq demo --export demo-lake
    """
    from spanmq_lab import demo as demonstration

    output = Output(as_json=as_json)
    if export is not None:
        _check_folder(export, queue)
    with contextlib.ExitStack() as stack:
        if keep:
            # A server that is gone afterwards keeps nothing.
            dsn = stack.enter_context(prepared_address(dsn))
        last_act = partial(_export, export) if export is not None else None
        result = demonstration.run(dsn, rows=rows, consumers=consumers, queue=queue, keep=keep, then=last_act)
    if as_json:
        output.done("", **fields(result))
    else:
        print_table(["demo", "result"], result.lines())
    if not result.passed:
        raise typer.Exit(FAILED)


def _check_folder(folder: Path, queue: str) -> None:
    """Refuse a folder that cannot be written, or whose lake, which is deleted, is not a demo's."""
    lake = folder / "lake"
    manifests = list((lake / "_spanmq").glob("*/*.json"))
    is_ours = (lake / "_spanmq").is_dir() and all(
        manifest.stem.rpartition("-")[0] == queue for manifest in manifests
    )
    if lake.exists() and not is_ours:
        raise InvalidArgumentError(
            f"{lake} exists, and was not created by an earlier demo", hint="Give another --export."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidArgumentError(f"{folder} can't be made: {error.strerror}") from error
    if not os.access(folder, os.W_OK):
        raise InvalidArgumentError(f"{folder} can't be written")


def _export(folder: Path, dsn: str, queue: str) -> None:
    """Export the archive to Parquet; without Spark or Java, print a message."""
    try:
        from spanmq_spark.cause import clear_errors
        from spanmq_spark.session import opened
    except ModuleNotFoundError as error:
        say(f"no export: {error.name} is not installed (pip install 'spanmq[spark]')")
        return
    lake = folder / "lake"
    shutil.rmtree(lake, ignore_errors=True)  # of an earlier demo, whose messages are no more
    say("starting Spark")
    with contextlib.ExitStack() as stack, clear_errors():
        try:
            spark = stack.enter_context(opened(name="spanmq demo"))
        except ExtraNotInstalledError as error:
            say(f"no export: {error}")
            return
        from spanmq_spark.jobs.export import export

        exported = export(spark, dsn, queue, lake)
        say(f"exported {exported.exported:,} messages to {lake}, verified, in {exported.seconds:.1f} s")
