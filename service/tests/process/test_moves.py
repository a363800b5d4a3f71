"""A move task outlives the service that began it."""

from collections import Counter
from pathlib import Path

from service.tests.running import service, service_process
from service.tests.sqs.conftest import client_of
from service.tests.sqs.test_moves import MESSAGES, bodies, stage, start, task
from tests.cli.program import do, wait_until


def test_task_of_a_service_that_was_killed_is_gone_on_with(database: str, tmp_path: Path) -> None:
    with service_process(database, tmp_path) as first:
        sqs = client_of(first.address)
        _, _, arn = stage(sqs)
        start(sqs, arn, MaxNumberOfMessagesPerSecond=1)
        wait_until(lambda: len(bodies(database, "back")) >= 1)
        first.kill()
    moved = len(bodies(database, "back"))
    assert moved < MESSAGES
    do(database, "update spanmq_core.sqs_move set rate = null")
    folder = tmp_path / "second"
    folder.mkdir()
    with service(database, folder) as second:
        again = client_of(second.address)
        wait_until(lambda: task(again, arn)["Status"] == "COMPLETED")
        assert task(again, arn)["ApproximateNumberOfMessagesMoved"] == MESSAGES
    assert bodies(database, "back") == Counter(str(n) for n in range(MESSAGES))
    assert bodies(database, "dead") == Counter()
