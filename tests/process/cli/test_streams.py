"""Streams that are slow, closed, or that nobody reads any more."""

import shlex
import subprocess

import pytest
from tests.cli.program import PROGRAM, ask, environment, finish, started, wait_until
from tests.cli.test_send import bodies
from tests.patience import WAIT_SECONDS


@pytest.mark.parametrize("command", ["schema sql", "version"])
def test_closed_pipe_ends_it_silently(database: str, command: str) -> None:
    with started(*command.split(), dsn=database) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(WAIT_SECONDS) == 1


def test_closed_streams_are_empty_ones(orders: str) -> None:
    command = shlex.join([*PROGRAM, "send", "orders"])
    done = subprocess.run(["bash", "-c", f"{command} <&- >&- 2>&-"], env=environment(orders), check=False)
    assert done.returncode == 0


def test_who_reads_no_ids_any_more_is_told_what_was_sent(orders: str) -> None:
    with started("send", "orders", "--json", dsn=orders) as process:
        process.stdout.close()
        process.stdin.write(b"1\n2\n")
        process.stdin.flush()
        done = finish(process)
    said = "spanmq: sent 2 messages; the reader of their ids has gone\n"
    assert (done.code, done.err) == (1, said)
    assert bodies(orders) == [1, 2]


def test_slow_lines_are_sent_without_waiting_for_a_full_batch(orders: str) -> None:
    with started("send", "orders", dsn=orders) as process:
        process.stdin.write(b"1\n2\n3")  # the third is not complete
        process.stdin.flush()
        wait_until(lambda: ask(orders, "select count(*) from pgmq.q_orders") == 2, process)
        done = finish(process)
    assert done.out == "sent 3 messages to orders\n"
    assert bodies(orders) == [1, 2, 3]
