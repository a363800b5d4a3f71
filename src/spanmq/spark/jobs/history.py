"""Whether a database still has what a lake got from it: it may have been restored to an earlier time.

Each manifest has the token of a position that the database noted before. A database that does not know the token
of the newest lacks messages of the lake, or has others under their ids. The lake is then refused by a file, and
marked in the database, until a person says what happened.
"""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from spanmq.client import argument
from spanmq.client.call import queue_call
from spanmq.client.rows import nothing
from spanmq.errors import PipelineError, PositionUnknownError
from spanmq.spark import calls, rows
from spanmq.spark.jobs.lake import Lake
from spanmq.spark.jobs.lake_table import escaped
from spanmq.spark.jobs.manifest import FOLDER, Exported, changed_by, read_manifest, write_exported

_HINT: Final = (
    "If this database was restored to an earlier time: spanmq pipeline restored. If it was moved with all it has:"
    " spanmq pipeline moved. Or use another folder."
)


def check_history(dsn: str, lake: Lake, exported: Exported, *, is_dry_run: bool = False) -> None:
    """Raise PositionUnknownError, and refuse the lake from now on, if the database lacks what it has.

    Raises PipelineError for a lake of another queue of the same name.
    """
    queue = exported.queue
    if (since := refused_at(lake, exported)) is not None:
        raise PositionUnknownError(f"{lake.uri} has been refused since {since}", hint=_HINT, queue=queue)
    if not exported.number:
        return
    with rows.connected(dsn) as server:
        source = rows.identity(server, queue)
    if exported.source != source:
        raise PipelineError(
            f"{lake.uri} holds another queue of the name {queue}",
            hint="It is of another database, or was dropped and created again: use another folder. If its"
            " database was moved with all it has: spanmq pipeline moved.",
            queue=queue,
        )
    if not knows(dsn, exported):
        if not is_dry_run:
            refuse(dsn, lake, exported)
        raise PositionUnknownError(
            f"{lake.uri} has messages of queue {queue} that this database has lost", hint=_HINT, queue=queue
        )


def knows(dsn: str, exported: Exported) -> bool:
    """Return whether the database knows the position of a lake; a lake without exports needs none."""
    if not exported.count and not exported.position:
        return True
    with rows.connected(dsn) as server:
        return bool(server.admin.run(calls.known_positions(exported.queue, [exported.position])))


def refused_at(lake: Lake, exported: Exported) -> str | None:
    """Return since when a lake is refused, None if it is not."""
    data = lake.read(_name(exported))
    return None if data is None else str(json.loads(data)["refused_at"])


def refuse(dsn: str, lake: Lake, exported: Exported) -> None:
    """Refuse a lake; retention keeps the archive from now on."""
    with rows.connected(dsn) as server:
        arguments = (argument.text("lake", lake.uri), argument.text("table", exported.table).to("of_table"))
        server.admin.run(queue_call(exported.queue, "refuse_export", nothing, *arguments))
    lake.put(_name(exported), json.dumps({"refused_at": datetime.now(UTC).isoformat()}).encode())


def accept(dsn: str, lake: Lake, exported: Exported) -> None:
    """End the refusal of a lake; retention deletes what it has, and nothing else."""
    note(dsn, exported, is_whole=True)
    lake.delete(_name(exported))


def note(dsn: str, exported: Exported, *, is_whole: bool) -> Exported:
    """Record in the database what the lake has: all of it, or what manifests changed since the last time."""
    blocks: list[int] | None = None
    if not is_whole and exported.noted:
        numbers = range(exported.noted + 1, exported.number + 1)
        manifests = [read_manifest(exported.lake, exported.queue, exported.table, n) for n in numbers]
        blocks = sorted({block for each in manifests if each is not None for block in changed_by(each)})
    if blocks is None or blocks:
        ids = exported.ids if blocks is None else exported.ids_in(blocks)
        arguments = (
            argument.text("lake", exported.lake.uri),
            argument.Argument("ids", rows.multirange(ids), "cast({} as int8multirange)"),
            argument.text("table", exported.table).to("of_table"),
            *argument.optional(argument.bigints, "blocks", blocks),
        )
        with rows.connected(dsn) as server:
            server.admin.run(queue_call(exported.queue, "note_export", nothing, *arguments))
    return write_exported(replace(exported, noted=exported.number))


def _name(exported: Exported) -> str:
    return f"{FOLDER}/{exported.table}/{escaped(exported.queue)}.refused"
