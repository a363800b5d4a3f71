"""The comparison of a lake with its database: either may have been restored to an earlier time.

A position is a random token, under which the database notes an export before the lake has it, and which the export's
manifest has. After the export the database notes its number beside the token, as the newest of the lake.

The database knows the token of the lake's newest export, and the lake has the token that the database noted last, under
its number: both are as they were. If only the first is so, the lake went back, or is a copy: retention may have deleted
what it lacks. If only the second is so, the database went back: it lacks messages of the lake, or has others under
their ids. If neither is, both did.

In all but the first state the lake is refused, by a file and by a mark in the database, until a person says what
happened (restored.py). A third one may go back: the catalogue of a table. Each commit names the one that it follows,
so it is noticed by the next (`Committed` in manifest.py).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from spanmq.client import argument
from spanmq.client.call import Call, queue_call
from spanmq.client.rows import nothing
from spanmq.errors import PipelineError, PositionUnknownError
from spanmq.spark import calls, rows
from spanmq.spark.jobs.lake import Lake
from spanmq.spark.jobs.lake_table import escaped
from spanmq.spark.jobs.manifest import FOLDER, Exported, changed_by, read_manifest, write_exported
from spanmq.spark.jobs.ranges import Ranges

_HINT: Final = (
    "If this database was restored to an earlier time: spanmq pipeline restored. If it was moved with all it has:"
    " spanmq pipeline moved. Or use another folder."
)
_HINT_OF_LAKE: Final = (
    "If the lake was set back to an earlier time, or is a copy: spanmq pipeline restored. To begin anew in this folder:"
    " spanmq pipeline forget-export."
)
# The database keeps the tokens of a hundred exports of a lake.
TOKENS: Final = 100


@dataclass(frozen=True, slots=True)
class Standing:
    """The relation of a lake to its database, by their newest exports.

    `source` is the database's identity. It has noted export `noted` of the lake under the name `noted_as`, or of the
    one of which it is a copy. The lake has been refused since `refused_at`, a time as text.
    """

    source: str
    is_of_source: bool
    database_lacks: bool
    lake_lacks: bool
    noted: int
    noted_as: str
    refused_at: str | None

    @property
    def is_well(self) -> bool:
        """Return whether lake and database have the same exports."""
        return not (self.database_lacks or self.lake_lacks)


def compare(dsn: str, lake: Lake, exported: Exported) -> Standing:
    """Return how a lake and its database stand to each other."""
    queue, table, token = exported.queue, exported.table, exported.position
    with rows.connected(dsn) as server:
        source = rows.identity(server, queue)
        knows = not token or bool(server.admin.run(calls.known_positions(queue, [token])))
        found = server.admin.run(calls.noted_export(queue, lake.uri, table, token))
    noted_as, number, noted_token, refused_at = found or (lake.uri, None, None, None)
    noted = number or 0
    manifest = read_manifest(lake, queue, table, noted) if noted <= exported.number else None
    data = lake.read(_name(exported))
    refused = json.loads(data)["refused_at"] if data is not None else refused_at
    return Standing(
        source=source,
        is_of_source=exported.source in (source, ""),
        # A lake that is older than all tokens is behind by itself.
        database_lacks=not knows and noted - exported.number < TOKENS,
        lake_lacks=noted > exported.number
        or (manifest is not None and noted_token is not None and manifest.position != noted_token),
        noted=noted,
        noted_as=noted_as,
        refused_at=None if refused is None else str(refused),
    )


def check_history(dsn: str, lake: Lake, exported: Exported, *, is_dry_run: bool = False) -> None:
    """Raise PositionUnknownError, and refuse the lake from now on, if it or the database lacks what the other has.

    Raises PipelineError for a lake of another queue of the same name.
    """
    queue = exported.queue
    found = compare(dsn, lake, exported)
    if found.refused_at is not None:
        raise PositionUnknownError(
            f"{lake.uri} has been refused since {found.refused_at}",
            hint=_HINT_OF_LAKE if found.lake_lacks else _HINT,
            queue=queue,
        )
    if not found.is_of_source:
        raise PipelineError(
            f"{lake.uri} holds another queue of the name {queue}",
            hint="It is of another database, or was dropped and created again: use another folder. If its"
            " database was moved with all it has: spanmq pipeline moved.",
            queue=queue,
        )
    if found.is_well:
        return
    if not is_dry_run:
        refuse(dsn, lake, exported)
    if found.database_lacks:
        raise PositionUnknownError(
            f"{lake.uri} has messages of queue {queue} that this database has lost", hint=_HINT, queue=queue
        )
    raise PositionUnknownError(
        f"{lake.uri} lacks exports of queue {queue} that this database has noted: it has {exported.number} of"
        f" {found.noted}, or others",
        hint=_HINT_OF_LAKE,
        queue=queue,
    )


def refuse(dsn: str, lake: Lake, exported: Exported) -> None:
    """Refuse a lake; retention keeps the archive from now on."""
    with rows.connected(dsn) as server:
        server.admin.run(refuse_export(exported.queue, lake, exported.table))
    lake.put(_name(exported), json.dumps({"refused_at": datetime.now(UTC).isoformat()}).encode())


def accept(dsn: str, lake: Lake, exported: Exported) -> None:
    """End the refusal of a lake; retention deletes what it has, and nothing else."""
    note(dsn, exported, is_whole=True)
    lake.delete(_name(exported))


def note(dsn: str, exported: Exported, *, is_whole: bool) -> Exported:
    """Record in the database what the lake has, and its newest export: all, or what changed since the last time."""
    blocks: list[int] | None = None
    if not is_whole and exported.noted:
        numbers = range(exported.noted + 1, exported.number + 1)
        manifests = [read_manifest(exported.lake, exported.queue, exported.table, n) for n in numbers]
        blocks = sorted({block for each in manifests if each is not None for block in changed_by(each)})
    if blocks is None or blocks:
        ids = exported.ids if blocks is None else exported.ids_in(blocks)
        newest = exported.number, exported.position or None
        with rows.connected(dsn) as server:
            server.admin.run(note_export(exported.queue, exported.lake, exported.table, ids, blocks, newest))
    return write_exported(replace(exported, noted=exported.number))


def note_export(
    queue: str,
    lake: Lake,
    table: str,
    ids: Ranges,
    blocks: Sequence[int] | None,
    newest: tuple[int, str | None],
) -> Call[None]:
    """Note that a lake has these ids, of all or of some blocks, by its export of this number and position."""
    number, position = newest
    arguments = (
        argument.text("lake", lake.uri),
        argument.Argument("ids", rows.multirange(ids), "cast({} as int8multirange)"),
        argument.text("table", table).to("of_table"),
        *argument.optional(argument.bigints, "blocks", blocks),
        argument.bigint("number", number),
        *argument.optional(argument.uuid, "token", position),
    )
    return queue_call(queue, "note_export", nothing, *arguments)


def refuse_export(queue: str, lake: Lake, table: str) -> Call[None]:
    """Refuse a lake: retention keeps the archive from now on."""
    arguments = argument.text("lake", lake.uri), argument.text("table", table).to("of_table")
    return queue_call(queue, "refuse_export", nothing, *arguments)


def _name(exported: Exported) -> str:
    return f"{FOLDER}/{exported.table}/{escaped(exported.queue)}.refused"
