"""Workers that are stopped dead, killed while they extend or end, and ten who keep house at once."""

import os
import signal
import threading
from pathlib import Path

import pytest
from tests.cli.program import wait_until
from tests.patience import WAIT_SECONDS
from tests.process.worker import audit
from tests.process.worker.processes import LEASE_SECONDS, die, end_well, history, process, work_off
from tests.worker.running import working

from spanmq import Client, Message
from spanmq.worker.event import MessageSettled


def test_worker_that_slept_through_its_lease_settles_nothing(
    client: Client, database: str, tmp_path: Path
) -> None:
    """As on a machine that was suspended: the handler has begun, and its heartbeat stands still with it."""
    log = tmp_path / "log"
    with (
        history(database, tmp_path / "calls") as options,
        process(database, log, "--lease", LEASE_SECONDS, "--seam", "begun", *options) as worker,
    ):
        [message_id] = client.send_batch("orders", [1])
        # It stands still in its handler: it is told of once, and it does not end.
        os.waitid(os.P_PID, worker.pid, os.WSTOPPED)
        [(attempt, _)] = audit.read(log).stories[message_id].deliveries
        begun, end = threading.Event(), threading.Event()

        def handle(message: Message) -> None:
            begun.set()
            end.wait(WAIT_SECONDS)

        with working(database, handle) as record:
            assert begun.wait(WAIT_SECONDS)
            worker.send_signal(signal.SIGCONT)
            wait_until(lambda: (attempt, "stale") in audit.read(log).stories[message_id].outcomes, worker)
            # Its ack came while the other one holds the message.
            assert client.queues.metrics("orders").length == 1
            end.set()
            [settled] = record.wait(MessageSettled)
        assert (settled.message_id, settled.outcome, settled.attempt) == (message_id, "acked", attempt + 1)
        end_well(worker)
    assert audit.read(log).acked == set()
    assert client.queues.metrics("orders").length == 0


@pytest.mark.parametrize("seam", ["lease_extended", "worker_stopping", "worker_stopped"])
def test_nothing_is_lost_when_a_worker_is_killed_as_it_extends_or_ends(
    client: Client, database: str, tmp_path: Path, seam: str
) -> None:
    log = tmp_path / "log"
    work_ms = 2 * LEASE_SECONDS * 1000 if seam == "lease_extended" else 20
    with history(database, tmp_path / "calls") as recorded:
        sent = client.send_batch("orders", range(30))
        options = ("--lease", LEASE_SECONDS, "--work-ms", work_ms, "--seam", seam, *recorded)
        with process(database, log, *options) as worker:
            wait_until(lambda: worker.poll() is not None or bool(audit.read(log).stories))
            if seam != "lease_extended":
                worker.send_signal(signal.SIGTERM)
            die(worker)
        # Something to do for the next one in any case: before its first message it may not listen to signals.
        sent.append(client.send("orders", 30))
        work_off(client, database, log, *recorded)
    found = audit.read(log)
    assert found.seams == [seam]
    assert {number for number, story in found.stories.items() if story.is_handled} == set(sent)
    # What a worker that ends gave back comes again before its lease is over, with the same attempt.
    if seam == "lease_extended":
        # The log tells the end of a lease as it was at first: what came again did so after a longer one.
        assert audit.faults(found, sent, lease=LEASE_SECONDS) == []
    assert all(
        sum(outcome == "acked" for _, outcome in story.outcomes) <= 1 for story in found.stories.values()
    )
