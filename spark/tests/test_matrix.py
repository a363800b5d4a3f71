"""A generated matrix: what goes back in time, when, and where exports and repairs are cut off; for each format.

Whatever happens, a message is in the table of the lake once, or among the rows that were kept beside it, or counted as
gone; or all that had it went back to a time before it.
"""

import itertools
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import psycopg
import pytest
from spark.tests.restored import copied
from spark.tests.test_goes_back import (
    FORMATS,
    Bodies,
    Catalogue,
    Killed,
    archived,
    column,
    lost_of,
    retained,
    rows_of,
    run,
    words,
)

from spanmq.errors import PositionUnknownError
from spanmq_spark.jobs.lake import lake_at
from spanmq_spark.jobs.lake_format import FORMATS as CLASSES
from spanmq_spark.jobs.lake_format import known_table
from spanmq_spark.jobs.manifests.store import files_of
from spanmq_spark.jobs.ranges import size_of, union
from spanmq_spark.jobs.repairs import restored

JOBS = "spanmq_spark.jobs"
MANIFESTS = f"{JOBS}.manifests"
ALL_FORMATS = [*FORMATS, "ducklake"]
# What goes back: alone, and in pairs.
SUBJECTS = ["database", "lake", "catalogue"]
SETS = [*((each,) for each in SUBJECTS), *itertools.combinations(SUBJECTS, 2)]
MOMENTS = ["before", "during", "after"]
# Between each two steps of an export: it is killed before the call of this name, or after it.
STEPS = [
    f"{MANIFESTS}.run.write_draft",
    f"{JOBS}.export.verify",
    "spanmq_spark.calls.note_position",
    "commit",
    f"{MANIFESTS}.run.write_manifest",
    f"{MANIFESTS}.run.drop_draft",
    f"{MANIFESTS}.run.record",
    f"{MANIFESTS}.run.write_seen",
]
# And of a repair.
REPAIR_STEPS = [
    f"{MANIFESTS}.run.write_draft",
    "spanmq_spark.rows.count_others",
    "spanmq_spark.calls.note_position",
    "commit",
    f"{MANIFESTS}.repair.take_numbers",
    f"{MANIFESTS}.run.write_manifest",
    f"{MANIFESTS}.run.drop_draft",
    f"{MANIFESTS}.repair.note",
]
# A DuckLake's export is one transaction, and so is its repair.
DUCKLAKE = f"{JOBS}.ducklake"
DUCKLAKE_STEPS = [
    f"{JOBS}.export.verify",
    f"{DUCKLAKE}.catalogue.Catalogue.create",
    "spanmq_spark.calls.note_position",
    "spanmq_spark.calls.note_export",
    f"{DUCKLAKE}.catalogue.Catalogue.note",
    f"{DUCKLAKE}.catalogue.Catalogue.add",
    f"{DUCKLAKE}.run.CatalogueRun.commit",
    f"{DUCKLAKE}.run.CatalogueRun.note",
]
DUCKLAKE_REPAIR_STEPS = [
    f"{DUCKLAKE}.repair.report",
    f"{DUCKLAKE}.catalogue.Catalogue.create",
    f"{DUCKLAKE}.repair.note_newest",
    f"{DUCKLAKE}.catalogue.Catalogue.add",
]


def cuts_of(steps: list[str]) -> list[tuple[str, bool]]:
    return [(step, is_after) for step in steps for is_after in (False, True)]


CUTS = {kind: cuts_of(DUCKLAKE_STEPS if kind == "ducklake" else STEPS) for kind in ALL_FORMATS}
REPAIR_CUTS = {
    kind: cuts_of(DUCKLAKE_REPAIR_STEPS if kind == "ducklake" else REPAIR_STEPS) for kind in ALL_FORMATS
}
# Each case copies databases: a run has some of them, which its seed chooses. SPANMQ_TEST_CASES=144 runs all.
QUANTITY = int(os.environ.get("SPANMQ_TEST_CASES") or (24 if os.environ.get("SPANMQ_TEST_DEEP") else 3))
CASES = random.Random(int(os.environ.get("SPANMQ_TEST_SEED", "1"))).sample(
    list(enumerate(itertools.product(ALL_FORMATS, SETS, MOMENTS, range(2)))), QUANTITY
)


@contextmanager
def cut(kind: str, step: str, *, is_after: bool) -> Iterator[None]:
    """Kill what runs in the block at a step, if it takes it."""
    name = step.rpartition(".")[2]
    owner: Any = resolve_name(step.rpartition(".")[0]) if "." in step else CLASSES[kind]
    act = getattr(owner, name)

    def killing(*given: Any, **named: Any) -> Any:
        if is_after:
            act(*given, **named)
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, killing)
        with suppress(Killed):
            yield


@pytest.mark.deeper
@pytest.mark.parametrize(
    ("number", "kind", "subjects", "moment"),
    [
        pytest.param(n, kind, subjects, moment, id=f"{kind}-{'+'.join(subjects)}-{moment}-{turn}")
        for n, (kind, subjects, moment, turn) in CASES
    ],
)
def test_nothing_is_lost_or_doubled_without_a_word(
    dsn: str,
    spanmq_server: str,
    tmp_path: Path,
    number: int,
    kind: str,
    subjects: tuple[str, ...],
    moment: str,
) -> None:
    lake = tmp_path / "lake"
    export = partial(run, dsn, lake, kind)
    archived(dsn, "first", 8)
    export()
    step, is_after = CUTS[kind][number * 7 % len(CUTS[kind])]
    took = cut(kind, step, is_after=is_after)
    backups: list[Callable[[], None]] = []

    def back_up() -> None:
        for subject in subjects:
            if subject == "database":
                backups.append(copied(dsn, spanmq_server))
            elif subject == "lake":
                shutil.copytree(lake, tmp_path / "backup")
                backups.append(lambda: swap(tmp_path / "backup", lake))
            else:
                backups.append(Catalogue(kind, dsn, lake).copied())

    if moment == "before":
        back_up()
    archived(dsn, "cut", 6)
    with took:
        export()
    if moment == "during":
        back_up()
    export()
    if moment == "after":
        back_up()
    archived(dsn, "later", 5)
    export()
    if number % 2:
        retained(dsn)
    archived(dsn, "last", 3)
    step, is_after = CUTS[kind][number * 5 % len(CUTS[kind])]
    with cut(kind, step, is_after=is_after):
        export()
    # The catalogue is in the dsn that goes back, and the lake has Delta's log.
    for went_back in backups:
        went_back()
    there = archive_of(dsn)
    in_lake = bodies_before_repair(lake, kind, dsn)
    archived(dsn, "new", 4)
    try:
        export()
    except PositionUnknownError:
        step, is_after = REPAIR_CUTS[kind][number * 3 % len(REPAIR_CUTS[kind])]
        with cut(kind, step, is_after=is_after):
            restored(dsn, "orders", lake=lake)
        restored(dsn, "orders", lake=lake)
        export()
    assert export().exported == 0
    table, kept = rows_of(lake, dsn), lost_of(lake)
    assert table["new"] == 4
    sent = Bodies({"first": 8, "cut": 6, "later": 5, "last": 3, "new": 4})
    assert table - sent == Bodies()
    missing = sent - table - kept
    # What the dsn has, and what the lake had, is somewhere.
    assert all(there[word] == 0 and in_lake[word] == 0 for word in missing)
    if "lake" in subjects and "database" not in subjects:
        assert gone_of(lake) == missing.total()
    elif "database" not in subjects:
        assert missing == Bodies()


def gone_of(lake: Path) -> int:
    """Return how many messages are named as gone."""
    found = [json.loads(path.read_bytes()) for path in (lake / "lost").rglob("*.gone.json")]
    return size_of(union([], [(first, last) for ranges in found for first, last in ranges]))


def swap(backup: Path, lake: Path) -> None:
    shutil.rmtree(lake)
    backup.rename(lake)


def archive_of(dsn: str) -> Bodies:
    with psycopg.connect(dsn) as connection:
        found = connection.execute("select message #>> '{}' from pgmq.a_orders").fetchall()
    return Bodies(str(body).split()[0] for (body,) in found)


def bodies_before_repair(lake: Path, kind: str, dsn: str) -> Bodies:
    """Return what the manifests of a lake name, or its catalogue."""
    place = lake_at(lake)
    names = (
        known_table(dsn, place, "archive").read("orders") if kind == "ducklake" else files_of(place, "orders")
    )
    return words([body for name in names if (lake / name).exists() for body in column(lake / name)])
