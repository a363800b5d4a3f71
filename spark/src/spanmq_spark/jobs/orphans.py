"""orphans: the files of exports into a DuckLake that its catalogue does not know, of killed runs and lost times."""

from dataclasses import dataclass
from pathlib import Path

from spanmq.errors import PipelineError
from spanmq_spark.jobs.ducklake.catalogue import Catalogue
from spanmq_spark.jobs.ducklake.repair import is_one, orphans_of
from spanmq_spark.jobs.lake import lake_at
from spanmq_spark.jobs.lake_lock import alone
from spanmq_spark.jobs.lake_table import TABLES

__all__ = ["OrphansReport", "orphans"]


@dataclass(frozen=True, slots=True)
class OrphansReport:
    """The `names` in a `lake` of files of a `queue` that count nowhere, and whether they `were_deleted`."""

    queue: str
    lake: str
    names: list[str]
    were_deleted: bool


def orphans(dsn: str, queue: str, lake: str | Path, *, delete: bool = False) -> OrphansReport:
    """List the files that exports of a `queue` wrote and the catalogue of a DuckLake does not know, or delete them.

    `dsn` is the database that has the catalogue, and `lake` a folder or the URI of an object store. Exports that were
    killed leave such files, and so does a database that was restored to an earlier time. The catalogue of a copy of the
    database may still know them, which is why no export deletes them. Raises PipelineError where an export of the
    queue is under way, or the lake is of another format, QueueNotFoundError for a queue that does not exist.
    """
    place = lake_at(lake)
    names: list[str] = []
    is_any = False
    for table in TABLES:
        if is_one(dsn, place, table):
            is_any = True
            with alone(dsn, place, queue, table) as server:
                unknown = orphans_of(Catalogue(server, place, TABLES[table]), queue)
                for name in unknown if delete else ():
                    place.delete(name)
                names += unknown
    if not is_any:
        raise PipelineError(
            f"{place.uri} is not a DuckLake", hint="Exports into lakes of other formats delete such files."
        )
    return OrphansReport(queue, str(lake), names, delete)
