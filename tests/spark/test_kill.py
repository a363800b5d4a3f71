"""A driver that does six things at once, killed with SIGKILL; what became of each is audited without Spark.

A driver takes long to start, so one is killed here, at one seam of each kind. `make soak-spark` takes all
seams, one by one, those of streams and writes several times, each with two million messages.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest
from tests.spark.driver import EXPORT_SEAMS, MIGRATE_SEAMS, SEND_SEAMS, STREAM_SEAMS
from tests.spark.kill import kill
from tests.spark.rabbit import is_installed, rabbit
from tests.spark.scene import AUDITS, MESSAGES, Scene, prepared, to_broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["rabbit"]
KILLS: Final = int(os.environ.get("SPANMQ_TEST_KILLS", "1"))
# Until a driver has come to its seam: mostly the start of Spark, and all batches where the seam is the last.
SECONDS: Final = 300 + MESSAGES / 2_000
CHOSEN: Final[tuple[tuple[str, str], ...]] = (
    ("stream", "reading"),
    ("stream", "written"),
    ("send", "copied"),
    ("export", "committed"),
    ("migrate", "half confirmed"),
    ("redrive", "redriven"),
)
Prepare = Callable[[str, str], Scene]


@pytest.fixture(scope="module")
def prepare(
    spanmq_server: str,
    spanmq_template: str,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Prepare]:
    """Make scenes."""
    with ExitStack() as stack:

        def one(what: str, seam: str) -> Scene:
            folder = tmp_path_factory.mktemp("kill") / what
            scene = stack.enter_context(prepared(what, seam, spanmq_server, spanmq_template, folder))
            if what == "migrate":
                return to_broker(scene, request.getfixturevalue("rabbit"))
            return scene

        yield one


@pytest.fixture(scope="module")
def killed(prepare: Prepare, spark: SparkSession) -> dict[tuple[str, str], Scene]:
    """Give what one driver left that was killed when it was at all seams that are chosen."""
    chosen = [each for each in CHOSEN if each[0] != "migrate" or is_installed()]
    scenes = {(what, seam): prepare(what, seam) for what, seam in chosen}
    kill([scene.act for scene in scenes.values()], seconds=SECONDS)
    return scenes


@pytest.mark.slow
@pytest.mark.parametrize(("what", "seam"), CHOSEN)
def test_killed_driver_loses_and_doubles_nothing(
    killed: dict[tuple[str, str], Scene], spark: SparkSession, what: str, seam: str
) -> None:
    if (what, seam) not in killed:
        pytest.skip("there is no RabbitMQ here (Debian: rabbitmq-server)")
    AUDITS[what](spark, killed[what, seam])


@pytest.mark.soak
@pytest.mark.timeout(120 + 4 * SECONDS)
@pytest.mark.parametrize(
    ("what", "seam"),
    [("export", seam) for seam in EXPORT_SEAMS]
    + [("migrate", seam) for seam in MIGRATE_SEAMS]
    + [("redrive", "redriven")],
)
def test_killed_job_loses_and_doubles_nothing(
    prepare: Prepare, spark: SparkSession, what: str, seam: str
) -> None:
    scene = prepare(what, seam)
    kill([scene.act], seconds=SECONDS)
    AUDITS[what](spark, scene)


@pytest.mark.soak
@pytest.mark.timeout(120 + 2 * SECONDS * len(STREAM_SEAMS) * KILLS)
def test_stream_killed_at_all_its_seams_delivers_each_message_once(
    prepare: Prepare, spark: SparkSession
) -> None:
    scene = prepare("stream", "")
    for seam in [*STREAM_SEAMS[:-1] * KILLS, *["settled"] * KILLS]:
        kill([replace(scene.act, seam=seam)], seconds=SECONDS)
    assert scene.client.metrics("orders").length == len(scene.held)
    AUDITS["stream"](spark, scene)


@pytest.mark.soak
@pytest.mark.timeout(120 + 2 * SECONDS * len(SEND_SEAMS) * KILLS)
def test_send_killed_at_all_its_seams_is_seen_as_a_whole_and_once(
    prepare: Prepare, spark: SparkSession
) -> None:
    scene = prepare("send", "")
    for seam in SEND_SEAMS[:-1] * KILLS:
        kill([replace(scene.act, seam=seam)], seconds=SECONDS)
        assert scene.client.metrics("orders").length == 0
    kill([replace(scene.act, seam="published")], seconds=SECONDS)
    AUDITS["send"](spark, replace(scene, act=replace(scene.act, seam="published")))
