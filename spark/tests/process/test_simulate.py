"""The load simulator, filled through the sink: a session in a process of its own."""

import json
from pathlib import Path

from lab.tests.process.running import objections, report


def test_messages_of_the_sink_keep_the_order_of_each_key(database: str, tmp_path: Path) -> None:
    found = report(
        *["--producer", "spark", "--fill-db", 1000, "--keys", 5, "--workers", 6, "--send-batch", 400],
        *["--work", "fixed:0"],
        dsn=database,
        folder=tmp_path,
    )
    assert (found["sent"], found["handled"], found["left"]) == (1000, 1000, 0)
    assert objections(found) == {}
    log = [json.loads(line) for line in (tmp_path / "msg_queue.log").read_text().splitlines()]
    # 400, 400 and 200 messages, of three types each: a write is of one queue.
    assert len([record for record in log if record["event"] == "sent"]) == 9
