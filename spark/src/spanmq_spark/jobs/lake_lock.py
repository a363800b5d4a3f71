"""The lock of a lake: one run at a time writes a queue's table, in its format, and only while all records agree."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol

from spanmq.client import Client
from spanmq.errors import PipelineError, PositionUnknownError
from spanmq_spark import rows
from spanmq_spark.calls import hold_export, refuse_export
from spanmq_spark.jobs.lake import Lake

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


class State(Protocol):
    """What is known of a queue's table; `error` says what is wrong, with a hint for exports."""

    @property
    def is_of_source(self) -> bool: ...
    @property
    def refused_at(self) -> Any: ...
    @property
    def consistency(self) -> Consistency: ...
    @property
    def error(self) -> PositionUnknownError: ...


@dataclass(frozen=True, slots=True)
class Seen:
    """What an export has compared with the lake: rows that were archived before `since`, a time as text.

    All ids were compared at `compared_at` (seconds since 1970), which is now if the comparison `is_whole`.
    """

    since: str
    compared_at: float
    is_whole: bool


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


def check(
    server: Client,
    lake: Lake,
    queue: str,
    table: str,
    state: State,
    *,
    is_dry_run: bool = False,
) -> None:
    """Raise PositionUnknownError, and refuse the lake from now on, unless each has what the others have.

    Raises PipelineError for a lake whose exports are of another queue, or of the queue in another database.
    """
    if not state.is_of_source:
        raise PipelineError(
            f"{lake.uri} holds another queue of the name {queue}",
            hint="It is of another database, or was dropped and created again: use another folder. If its"
            " database was moved with all it has: spanmq pipeline moved.",
            queue=queue,
        )
    if state.refused_at is not None:
        message = f"{lake.uri} has been refused since {state.refused_at}"
        raise PositionUnknownError(message, hint=state.error.hint, queue=queue)
    if state.consistency is Consistency.CONSISTENT:
        return
    if not is_dry_run:
        # Retention keeps the archive from now on.
        server.admin.run(refuse_export(queue, lake.uri, table))
    raise state.error
