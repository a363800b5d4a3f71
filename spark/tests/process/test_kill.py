"""A driver that does ten things at once, killed with SIGKILL; a reader other than Spark audits each.

A driver takes long to start, so one is killed here, at one seam of each kind. `make soak-spark` kills each
at all its seams, one after the other on the same two million messages, and audits what is there at the end.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest
from spark.tests.process.driver import CHUNK_SEAMS, EXPORT_SEAMS, MIGRATE_SEAMS, SEND_SEAMS, STREAM_SEAMS
from spark.tests.process.kill import kill
from spark.tests.process.rabbit import is_installed
from spark.tests.process.scene import (
    AUDITS,
    FILES,
    MESSAGES,
    OF_JOBS,
    Scene,
    assert_acted,
    assert_relayed,
    deaths,
    killed_in_letters,
    killed_in_migration,
    prepared,
    to_broker,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KILLS: Final = int(os.environ.get("SPANMQ_TEST_KILLS", "1"))
# Until a driver has come to its seam: mostly the start of Spark, and all batches where the seam is the last.
SECONDS: Final = 300 + MESSAGES / 2_000
CHOSEN: Final[tuple[tuple[str, str], ...]] = (
    ("stream", "reading"),
    ("stream", "written"),
    ("send", "copied"),
    ("export", "committed"),
    ("export_parquet", "verified"),
    ("export_store", "committed"),
    ("export_store_parquet", "verified"),
    ("migrate", "half confirmed"),
    ("redrive", "done"),
    ("relay", "published"),
)
Prepare = Callable[[str, str], Scene]


@pytest.fixture(scope="module")
def prepare(
    spanmq_server: str,
    spanmq_template: str,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Prepare]:
    with ExitStack() as stack:

        def one(what: str, seam: str) -> Scene:
            if "store" in what:
                request.getfixturevalue("object_store")
            folder = tmp_path_factory.mktemp("kill") / what
            scene = stack.enter_context(prepared(what, seam, spanmq_server, spanmq_template, folder))
            if what == "migrate":
                return to_broker(scene, request.getfixturevalue("rabbit"))
            return scene

        yield one


@pytest.fixture(scope="module")
def killed(prepare: Prepare, spark: SparkSession) -> dict[tuple[str, str], Scene]:
    """Return what one driver left that was killed when it was at all seams that are chosen."""
    chosen = [each for each in CHOSEN if each[0] != "migrate" or is_installed()]
    scenes = {(what, seam): prepare(what, seam) for what, seam in chosen}
    kill([scene.act for scene in scenes.values()], seconds=SECONDS)
    return scenes


@pytest.mark.parametrize(("what", "seam"), CHOSEN)
def test_killed_driver_loses_and_doubles_nothing(
    killed: dict[tuple[str, str], Scene], spark: SparkSession, what: str, seam: str
) -> None:
    if (what, seam) not in killed:
        pytest.skip("there is no RabbitMQ here (Debian: rabbitmq-server)")
    AUDITS[what](spark, killed[what, seam])


def limit(kills: int) -> pytest.MarkDecorator:
    """Return a test the time for so many kills, for preparing it all and for its audit."""
    return pytest.mark.timeout(120 + SECONDS * (kills + 3))


@pytest.mark.soak
@limit(KILLS * len(STREAM_SEAMS))
def test_stream_killed_at_all_its_seams_delivers_each_message_once(
    prepare: Prepare, spark: SparkSession
) -> None:
    scene = prepare("stream", "")
    for seam in [*STREAM_SEAMS[:-1] * KILLS, *["settled"] * KILLS]:
        kill([replace(scene.act, seam=seam)], seconds=SECONDS)
    assert scene.client.queues.metrics("orders").length == len(scene.held)
    AUDITS["stream"](spark, scene)


@pytest.mark.soak
@limit(KILLS * len(SEND_SEAMS))
@pytest.mark.parametrize("what", ["send", "backfill", "replay"])
def test_send_killed_at_all_its_seams_is_seen_as_a_whole_and_once(
    prepare: Prepare, spark: SparkSession, what: str
) -> None:
    scene = prepare(what, "")
    for seam in SEND_SEAMS[:-1] * KILLS:
        kill([replace(scene.act, seam=seam)], seconds=SECONDS)
        assert scene.client.queues.metrics("orders").length == 0
    kill([replace(scene.act, seam="published")], seconds=SECONDS)
    AUDITS[what](spark, replace(scene, act=replace(scene.act, seam="published")))


@pytest.mark.soak
@limit(KILLS * len(SEND_SEAMS) + 1)
def test_stream_that_sends_killed_at_all_its_seams_sends_each_epoch_once(
    prepare: Prepare, spark: SparkSession
) -> None:
    scene = prepare("relay", "")
    assert KILLS < FILES
    # Each epoch at each seam; of the last kill's epoch the next run finds the one before in Spark's log.
    seams = [(seam, epoch) for epoch in range(KILLS) for seam in SEND_SEAMS]
    for seam, epoch in [*seams, (SEND_SEAMS[0], KILLS)]:
        scene = replace(scene, act=replace(scene.act, seam=seam, after=epoch))
        kill([scene.act], seconds=SECONDS)
        assert_relayed(scene)
    AUDITS["relay"](spark, scene)


@pytest.mark.soak
@limit(KILLS * len(EXPORT_SEAMS))
@pytest.mark.parametrize("what", ["export", "export_parquet", "export_store", "export_store_parquet"])
def test_export_killed_at_all_its_seams_has_each_row_once(
    prepare: Prepare, spark: SparkSession, what: str
) -> None:
    scene = prepare(what, "")
    final = ("named",) if what.endswith("parquet") else ("committed", "named")
    for seam in [*EXPORT_SEAMS[:3] * KILLS, *final]:
        scene = replace(scene, act=replace(scene.act, seam=seam))
        kill([scene.act], seconds=SECONDS)
    AUDITS[what](spark, scene)


@pytest.mark.soak
@limit(KILLS * len(MIGRATE_SEAMS))
def test_migration_killed_at_all_its_seams_loses_nothing(prepare: Prepare, spark: SparkSession) -> None:
    scene = prepare("migrate", "")
    kills = KILLS * len(MIGRATE_SEAMS)
    for number, seam in enumerate(MIGRATE_SEAMS * KILLS):
        scene = replace(scene, act=replace(scene.act, seam=seam, after=number * OF_JOBS // kills))
        kill([scene.act], seconds=SECONDS)
        scene = killed_in_migration(scene)
    AUDITS["migrate"](spark, scene)


@pytest.mark.soak
@limit(KILLS * len(CHUNK_SEAMS))
@pytest.mark.parametrize("what", ["redrive", "discard"])
def test_dead_letters_killed_at_all_seams_are_acted_on_once(
    prepare: Prepare, spark: SparkSession, what: str
) -> None:
    scene = prepare(what, "")
    for seam in CHUNK_SEAMS * KILLS:
        # Of what a run has before it, for each begins anew.
        after = deaths() // (len(CHUNK_SEAMS) * KILLS + 1)
        scene = replace(scene, act=replace(scene.act, seam=seam, after=after))
        kill([scene.act], seconds=SECONDS)
        scene = killed_in_letters(scene)
        assert_acted(scene)
    AUDITS[what](spark, scene)
