"""Workers killed with SIGKILL at named seams: nothing is lost, nothing comes again before its time."""

import os
import random
from pathlib import Path

import psycopg
import pytest
from tests.cli.program import wait_until
from tests.patience import WAIT_SECONDS
from tests.process.worker import audit
from tests.process.worker.processes import LEASE_SECONDS, end_well, history, kill_at, process, work_off

from spanmq import Client

# `make soak-worker` kills fifty times.
KILLS = int(os.environ.get("SPANMQ_TEST_KILLS", "5"))
SEAMS = ("messages_received", "handler", "message_handled", "settling_started", "message_settled")


def test_nothing_is_lost_when_workers_are_killed(client: Client, database: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    chosen = random.Random(KILLS)
    wanted = [SEAMS[number % len(SEAMS)] for number in range(KILLS)]
    with history(database, tmp_path / "calls") as options:
        sent = client.send_batch("orders", range(100 * KILLS))
        for seam in wanted:
            kill_at(seam, chosen.randint(1, 3), database, log, "--work-ms", 10, *options)
        work_off(client, database, log, *options)
    found = audit.read(log)
    assert found.seams == wanted
    assert audit.faults(found, sent, lease=LEASE_SECONDS) == []


def test_what_a_handler_writes_with_the_ack_is_there_once_whatever_is_killed(
    client: Client, database: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    wanted = ["handler", "message_handled", "messages_received"]
    with (
        psycopg.connect(database, autocommit=True) as connection,
        history(database, tmp_path / "calls") as options,
    ):
        connection.execute("create table shipped (number int)")
        sent = client.send_batch("orders", range(200))
        for count, seam in zip((15, 10, 2), wanted, strict=True):
            kill_at(seam, count, database, log, "--table", *options)
        work_off(client, database, log, "--table", *options)
        found = connection.execute("select number from shipped order by number").fetchall()
    assert audit.read(log).seams == wanted
    assert [number for (number,) in found] == sent
    assert any(len(story.deliveries) > 1 for story in audit.read(log).stories.values())


@pytest.mark.parametrize("hours", [1, -1])
def test_clock_of_the_worker_does_not_matter(
    client: Client, database: str, tmp_path: Path, hours: int
) -> None:
    log, end = tmp_path / "log", tmp_path / "end"
    # By a clock that is wrong, leases would be over at once, or far too long to be extended by now.
    options = ("--clock", hours * 3600, "--lease", WAIT_SECONDS, "--share", 1 / 600, "--until", end)
    with (
        history(database, tmp_path / "calls") as recorded,
        process(database, log, *options, *recorded) as worker,
    ):
        sent = client.send_batch("orders", range(4))
        wait_until(lambda: audit.read(log).extensions >= 4, worker)
        end.touch()
        wait_until(lambda: len(audit.read(log).acked) == 4, worker)
        end_well(worker)
    stories = audit.read(log).stories
    assert sorted(stories) == sent
    assert {len(story.deliveries) for story in stories.values()} == {1}
