"""The lock of a lake: one run at a time writes a queue's table, in its format, and only while all records agree."""

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from spanmq.client import Client
from spanmq.errors import PipelineError, PositionUnknownError
from spanmq_spark import rows
from spanmq_spark.calls import hold_export, refuse_export
from spanmq_spark.jobs.lake import Lake
from spanmq_spark.jobs.ranges import Ranges, union

# The folder of what exports note of themselves.
FOLDER: Final = "_spanmq"
# For what a run that was killed a moment ago holds until the server sees its end.
WAIT_SECONDS: Final = 5.0
POLL_SECONDS: Final = 0.1


class Consistency(Enum):
    """Which of a lake, its database and the catalogue in it was set back to an earlier time.

    manifests/state.py and ducklake/run.py have the facts that tell it.
    """

    CONSISTENT = "each has what the others have"
    DATABASE_BACK = "the database lacks what the lake has"
    LAKE_BACK = "the lake lacks what the database, or the catalogue, has recorded"
    BOTH_BACK = "each lacks what the other one has"
    CATALOGUE_BACK = "the catalogue and the database have noted different exports"


@dataclass(frozen=True, slots=True)
class Seen:
    """What an export has compared with the lake: rows that were archived before `since`, a time as text.

    All ids were compared at `compared_at` (seconds since 1970).
    """

    since: str = ""
    compared_at: float = 0.0


@dataclass(frozen=True, slots=True)
class LakeState(ABC):
    """What is known of a queue's table in a lake. `source` is the identity of the queue in the database of `dsn`.

    The database has recorded ids of the lake `noted_as`, empty for none: this one, or that of which it is a copy. The
    lake has been refused since `refused_at`.
    """

    dsn: str
    lake: Lake
    queue: str
    table: str
    source: str
    consistency: Consistency
    noted_as: str
    refused_at: Any
    seen: Seen

    @property
    @abstractmethod
    def is_of_source(self) -> bool:
        """Whether the lake is of this database and queue, or has no export yet."""

    @property
    @abstractmethod
    def error(self) -> PositionUnknownError:
        """What is wrong, with a hint for exports."""

    def count(self) -> int:
        """Return the number of rows that were exported: the server counts them."""
        if not self.noted_as:
            return 0
        with rows.connected(self.dsn) as server:
            return rows.count_exported(server, self.queue, self.noted_as, self.table)

    def ids_in(self, blocks: Iterable[int] | None) -> Ranges:
        """Return the ids that the lake has, of all or some blocks of ids: they may be many."""
        chosen = None if blocks is None else list(blocks)
        if not self.noted_as or chosen == []:
            return []
        with rows.connected(self.dsn) as server:
            return union(rows.exported_ids(server, self.queue, self.noted_as, self.table, chosen), [])


@contextlib.contextmanager
def alone(dsn: str, lake: Lake, queue: str, table: str) -> Iterator[Client]:
    """Hold the lock of a queue's table in a lake for a block; yield the session that has it.

    Raises PipelineError for a folder that no export made, and where another has the lock.
    """
    top = lake.beside("")
    if top and FOLDER not in top:
        raise PipelineError(
            f"the folder {lake.uri} is in use: it has files that no export made", hint="Name an empty one."
        )
    until = time.monotonic() + WAIT_SECONDS
    with rows.connected(dsn) as server:
        while not server.admin.run(hold_export(queue, lake.uri, table)):
            if time.monotonic() > until:
                raise PipelineError(f"another export of queue {queue} is writing into {lake.uri}")
            time.sleep(POLL_SECONDS)
        yield server


def check_format_of(lake: Lake, table: str, format: str) -> None:  # noqa: A002 - Spark's word
    """Raise PipelineError for a table that has another format."""
    if (known := format_of(lake, table)) not in (format, None):
        raise PipelineError(
            f"the folder {lake.uri} is in use: its table {table} is of format {known}, not {format}",
            hint="Use another folder, or its format.",
        )


def format_of(lake: Lake, table: str) -> str | None:
    """Return the format of a table, None where it has none yet."""
    data = lake.read(f"{FOLDER}/{table}/format")
    return None if data is None else data.decode()


def note_format(lake: Lake, table: str, format: str) -> None:  # noqa: A002 - Spark's word
    """Set the format of a table unless it has one; raises PipelineError for another one."""
    if format_of(lake, table) is None:
        with contextlib.suppress(FileExistsError):
            lake.create(f"{FOLDER}/{table}/format", format.encode())
    check_format_of(lake, table, format)


def came_first(lake: Lake, queue: str) -> PipelineError:
    """Return the error of a run that another has overtaken."""
    return PipelineError(f"another export of queue {queue} into {lake.uri} came first", queue=queue)


def check(server: Client, state: LakeState, *, is_dry_run: bool = False) -> None:
    """Raise PositionUnknownError, and refuse the lake from now on, unless each has what the others have.

    Raises PipelineError for a lake whose exports are of another queue, or of the queue in another database.
    """
    uri, queue = state.lake.uri, state.queue
    if not state.is_of_source:
        raise PipelineError(
            f"{uri} holds another queue of the name {queue}",
            hint="It is of another database, or was dropped and created again: use another folder. If its"
            " database was moved with all it has: spanmq pipeline moved.",
            queue=queue,
        )
    if state.refused_at is not None:
        message = f"{uri} has been refused since {state.refused_at}"
        raise PositionUnknownError(message, hint=state.error.hint, queue=queue)
    if state.consistency is Consistency.CONSISTENT:
        return
    if not is_dry_run:
        # Retention keeps the archive from now on.
        server.admin.run(refuse_export(queue, uri, state.table))
    raise state.error
