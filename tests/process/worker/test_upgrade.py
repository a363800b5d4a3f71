"""Workers of a release, from its wheel, while the schema is upgraded to the next one."""

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from operator import gt
from pathlib import Path

import psycopg
import pytest
from tests.cli.program import wait_until
from tests.process.worker import audit
from tests.process.worker.processes import end_well, process
from tests.sql.schema.conftest import SQL, change

from spanmq import Client, schema

ROOT = Path(__file__).parents[3]
# What workers call most gains an argument, and a column where it returns any: each function is dropped and made again.
CHANGES = {
    "receive/receive.sql": [("newest boolean default false\n)", "{}, later text default null\n)")],
    "send/send.sql": [("spanmq_call.send(queue_name text, msg jsonb)", "{}, later text default null)")],
    "settle/message.sql": [
        (
            "spanmq_call.ack(\n    queue text, lease_id bigint, msg_ids bigint[]\n)",
            "{}, later text default null\n)",
        ),
        ("later text default null\n) returns table (msg_id bigint, outcome text)", "{}, of_later text)"),
        (
            "return query select * from spanmq_core.outcomes(msg_ids, gone, '{}'::bigint[], 'acked')",
            "return query select *, 'later' from spanmq_core.outcomes(msg_ids, gone, '{{}}'::bigint[], 'acked')",
        ),
    ],
}


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder with the wheel of the checkout, as pip puts it into an environment."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(tmp_path / "packages")
    return tmp_path / "packages"


def test_workers_of_the_release_before_work_on_during_and_after_the_upgrade(
    client: Client, database: str, packages: Path, tmp_path: Path
) -> None:
    shutil.copytree(SQL, tmp_path / "later")
    for file, pairs in CHANGES.items():
        changed = [(old, new.format(old.removesuffix(")").removesuffix("\n"))) for old, new in pairs]
        release = change(tmp_path / "later", file, *changed)
    logs = [tmp_path / "first", tmp_path / "second"]
    sent: list[int] = []

    def acked() -> int:
        return sum(len(audit.read(log).acked) for log in logs)

    with (
        process(database, logs[0], "--work-ms", 1, packages=packages) as first,
        process(database, logs[1], "--work-ms", 1, packages=packages) as second,
        psycopg.connect(database, autocommit=True) as session,
        ThreadPoolExecutor(1) as threads,
    ):

        def work_until(condition: Callable[[], bool]) -> None:
            """Send messages, alone and together, until the condition holds and both workers have handled some."""
            before = [len(audit.read(log).acked) for log in logs]

            def is_done() -> bool:
                sent.extend([client.send("orders", 1), *client.send_batch("orders", range(3))])
                counts = [len(audit.read(log).acked) for log in logs]
                return condition() and all(map(gt, counts, before))

            wait_until(is_done, first, second)

        work_until(lambda: True)
        # The second one, to the same release, meets calls of the first one's functions.
        for _ in range(2):
            upgrading = threads.submit(schema.upgrade, session, release=release)
            work_until(upgrading.done)
            assert upgrading.result().version == "9.0.0"
            work_until(lambda: True)
        wait_until(lambda: acked() == len(sent), first, second)
        for worker in (first, second):
            end_well(worker)
        assert schema.verify(session, release=release) == []
        assert client.dead_letters.count() == []
        assert client.queues.metrics("orders").length == 0
    for log in logs:
        assert str(packages) in log.read_text().splitlines()[0]
    stories = [story for log in logs for story in audit.read(log).stories.items()]
    assert sorted(number for number, _ in stories) == sent
    assert {tuple(outcome for _, outcome in story.outcomes) for _, story in stories} == {("acked",)}
    assert {len(story.deliveries) for _, story in stories} == {1}
