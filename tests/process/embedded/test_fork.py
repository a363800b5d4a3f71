"""Programs that fork while they hold an embedded server: the child takes nothing away, and keeps nothing."""

from pathlib import Path

import pytest
from tests.patience import WAIT_SECONDS
from tests.process.embedded.processes import is_stopped, start_python, wait_until_stopped

from spanmq import embedded

# Forks a child that lives until its stdin ends, says so, and goes on.
FORKED = """
import os, sys, threading
from spanmq import embedded
def fork():
    if os.fork() == 0:
        sys.stdin.read()
        os._exit(0)
    print("forked", flush=True)
"""


def test_child_that_leaves_the_block_of_a_temporary_server_takes_nothing_with_it() -> None:
    program = """
import os, sys, psycopg
from spanmq import embedded
with embedded.temporary() as server:
    if os.fork() == 0:
        sys.exit()
    os.wait()
    psycopg.connect(server.dsn).close()
    print((server.folder / "data/PG_VERSION").exists(), flush=True)
"""
    assert start_python(program).communicate() == ("True\n", "")


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "server.close()"])
def test_child_that_lives_on_does_not_hold_for_its_parent(folder: Path, end: str) -> None:
    process = start_python(f"{FORKED}server = embedded.start(sys.argv[1])\nfork()\n{end}", str(folder))
    assert process.stdout.readline() == "forked\n"
    process.wait(WAIT_SECONDS)
    try:
        assert wait_until_stopped(folder)
    finally:
        process.communicate("")


def test_child_that_is_forked_while_a_server_starts_keeps_no_lock(folder: Path) -> None:
    program = (
        FORKED
        + """
from spanmq.embedded import server as module
starting = module.start_supervisor
def fork_and_start(*given):
    thread = threading.Thread(target=fork)
    thread.start()
    thread.join()
    return starting(*given)
module.start_supervisor = fork_and_start
embedded.start(sys.argv[1]).close()
print("closed", flush=True)
"""
    )
    process = start_python(program, str(folder))
    assert [process.stdout.readline() for _ in range(2)] == ["forked\n", "closed\n"]
    try:
        assert is_stopped(folder)
        embedded.start(folder, timeout=WAIT_SECONDS / 6).close()
    finally:
        process.communicate("")


def test_child_ends_though_another_thread_was_closing_at_the_fork(folder: Path) -> None:
    program = """
import os, signal, sys
from spanmq import embedded
server = embedded.start(sys.argv[1])
server._closing.acquire()  # as another thread would have it
if os.fork() == 0:
    signal.alarm(int(sys.argv[2]))  # what hangs ends by it
    sys.exit()
print(os.wait()[1], flush=True)
server._closing.release()
"""
    assert start_python(program, str(folder), f"{WAIT_SECONDS:.0f}").communicate() == ("0\n", "")
    assert is_stopped(folder)
