"""A generated matrix of a stream from one database into a queue of another: what goes back in time, and when.

Source, target and checkpoint go back alone, in pairs and together, to the time before or after a driver was killed.
Whatever the source or the target then has is in the target, each once, or the stream refuses to go on.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from spark.tests.protocol import SEAMS, Stream
from spark.tests.restored import copied
from spark.tests.test_sink_restored import archived, relay

from spanmq.errors import PipelineError, PositionUnknownError
from spanmq_spark.jobs.repairs import restored

__all__ = ["relay"]

SUBJECTS = ["source", "target", "checkpoint"]
SETS = [each for n in (1, 2, 3) for each in itertools.combinations(SUBJECTS, n)]
# A run has some cases, which its seed chooses. SPANMQ_TEST_CASES=56 runs all.
ALL = list(itertools.product(SETS, ["before", "after"], SEAMS))
QUANTITY = int(os.environ.get("SPANMQ_TEST_CASES") or (14 if os.environ.get("SPANMQ_TEST_DEEP") else 4))
CASES = random.Random(int(os.environ.get("SPANMQ_TEST_SEED", "1"))).sample(ALL, min(QUANTITY, len(ALL)))


def bodies(dsn: str, table: str) -> Counter[Any]:
    with psycopg.connect(dsn) as connection:
        return Counter(body for (body,) in connection.execute(f"select message from pgmq.{table}").fetchall())


@pytest.mark.deeper
@pytest.mark.parametrize(
    ("subjects", "moment", "kill"),
    [pytest.param(*each, id=f"{'+'.join(each[0])}-{each[1]}-{each[2]}") for each in CASES],
)
def test_nothing_is_lost_or_sent_twice_without_a_word(
    relay: Stream,
    dsns: dict[str, str],
    spanmq_server: str,
    tmp_path: Path,
    subjects: tuple[str, ...],
    moment: str,
    kill: str,
) -> None:
    here, there = dsns["here"], dsns["there"]
    backups: list[Callable[[], object]] = []

    def back_up() -> None:
        for subject in subjects:
            if subject == "checkpoint":
                shutil.copytree(relay.checkpoint, tmp_path / "backup")
                backups.append(lambda: shutil.rmtree(relay.checkpoint))
                backups.append(lambda: (tmp_path / "backup").rename(relay.checkpoint))
            else:
                backups.append(copied(here if subject == "source" else there, spanmq_server))

    for body in (1, 2):
        archived(here, body)
        relay.run()
    if moment == "before":
        back_up()
    archived(here, 3)
    relay.run(kill=kill)
    if moment == "after":
        back_up()
    for body in (4, 5):
        archived(here, body)
        relay.run()
    for went_back in backups:
        went_back()
    archived(here, 6)
    before = bodies(there, "q_copies")
    with suppress(PositionUnknownError):
        relay.run()
        relay.run()
    try:
        with suppress(PipelineError):
            restored(here, "orders", checkpoint=relay.checkpoint)
        restored(there, "copies", checkpoint=relay.checkpoint)
        relay.run()
        relay.run()
    except PipelineError:
        # It says that another checkpoint is needed, and nothing has changed.
        assert "checkpoint" in subjects
        assert bodies(there, "q_copies") == before
        return
    found = bodies(there, "q_copies")
    assert {*bodies(here, "a_orders"), *before} == {*found}
    # What the source has, and had not recorded as read, comes again.
    twice = {body for body, n in found.items() if n > 1}
    assert twice <= ({3} if "source" in subjects and moment == "after" else set())
