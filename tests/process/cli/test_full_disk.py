"""An output that nobody can write: one line, and nothing is lost with it."""

import json
import subprocess
from pathlib import Path

import pytest
from tests.cli.program import PROGRAM, ask, environment, spanmq
from tests.patience import WAIT_SECONDS

FULL = Path("/dev/full")
pytestmark = pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full here")


def to_full_disk(*arguments: str, dsn: str) -> tuple[int, str]:
    with FULL.open("wb") as full:
        done = subprocess.run(
            [*PROGRAM, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(dsn),
            timeout=WAIT_SECONDS,
            check=False,
        )
    return done.returncode, done.stderr.decode()


@pytest.mark.parametrize(
    "arguments", ["message peek orders", "message peek orders --json", "schema sql", "--help"]
)
def test_full_disk_is_said_in_one_line(orders: str, arguments: str) -> None:
    assert spanmq("send", "orders", "1", dsn=orders).code == 0
    code, said = to_full_disk(*arguments.split(), dsn=orders)
    assert code == 1
    message = "the output can't be written: No space left on device"
    if "--json" in arguments:
        error = json.loads(said)["error"]
        assert (error["code"], error["message"]) == ("not_written", message)
    else:
        first, hint = said.splitlines()
        assert first == f"spanmq: {message}"
        assert hint.startswith("hint: The command itself may have been done")


def test_message_that_could_not_be_printed_is_not_popped(orders: str) -> None:
    assert spanmq("send", "orders", "1", dsn=orders).code == 0
    assert to_full_disk("message", "pop", "orders", dsn=orders)[0] == 1
    assert ask(orders, "select count(*) from pgmq.q_orders") == 1
    assert spanmq("message pop", "orders", "--json", dsn=orders).records[0]["body"] == 1
    assert ask(orders, "select count(*) from pgmq.q_orders") == 0
