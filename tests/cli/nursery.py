"""Imports the program once and forks itself for each run of it: a process of its own in a tenth of the time.

`tests.cli.forked` starts this with a socket. A request is four open files in one packet, the three streams of
the new process and a socket of its own. On it comes the rest of the request, and go the answers: its id with
a hold on it, and how it ended. When the tests are gone, even killed, so are all that they started.
"""

from __future__ import annotations

import gc
import json
import os
import selectors
import signal
import socket
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any

# Beside all commands: what these import only when they run.
MORE = (
    "asyncio psycopg psycopg_pool rich.console rich.markdown rich.table typer._adapters typer.rich_utils"
    " uvicorn.lifespan.on uvicorn.loops.uvloop uvicorn.protocols.http.httptools_impl"
    " spanmq.client spanmq.client_async spanmq.dashboard spanmq.embedded spanmq.encryption spanmq.schema"
    " spanmq.service.server spanmq.worker spanmq.worker.server"
)


def nurse(asked: socket.socket) -> None:
    """Return in a process that is to run the program; in the first one never."""
    with selectors.DefaultSelector() as selector:
        selector.register(asked, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is not asked:
                    end(selector, key)
                elif not answer(asked, selector):
                    return


def answer(asked: socket.socket, selector: selectors.BaseSelector) -> bool:
    """Fork for one request; tell whether this is still the first process."""
    said, files, _, _ = socket.recv_fds(asked, 1, 4)
    children = [key.data for key in selector.get_map().values() if key.data]
    if not said:
        for pid, _ in children:
            os.kill(pid, signal.SIGKILL)
        os._exit(0)
    own = socket.socket(fileno=files[3])
    request = json.loads(own.makefile("rb").read())
    pid = os.fork()
    if pid == 0:
        for closed in (own, asked, *(theirs for _, theirs in children)):
            closed.close()
        for key in list(selector.get_map().values()):
            if isinstance(key.fileobj, int):
                os.close(key.fileobj)
        become(request, files[:3])
        return False
    for each in files[:3]:
        os.close(each)
    hold = os.pidfd_open(pid)
    with suppress(OSError):
        socket.send_fds(own, [b"%d" % pid], [hold])
    selector.register(hold, selectors.EVENT_READ, (pid, own))
    return True


def end(selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    """Tell how one has ended."""
    pid, own = key.data
    _, status = os.waitpid(pid, 0)
    selector.unregister(key.fileobj)
    os.close(key.fd)
    with own, suppress(OSError):
        own.sendall(b"%d" % status)


def become(request: dict[str, Any], files: list[int]) -> None:
    """Be as if Python had just been started so."""
    for number, each in enumerate(files):
        os.dup2(each, number)
        os.close(each)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv[1:] = request["arguments"]
    sys.path[0] = os.getcwd()  # noqa: PTH109, as Python itself has it there
    sys.stdin = renewed(sys.stdin, "r")
    sys.stdout = renewed(sys.stdout, "w")
    sys.stderr = renewed(sys.stderr, "w")
    signal.signal(signal.SIGINT, signal.default_int_handler)


def renewed(stream: Any, mode: str) -> Any:
    """Give one of the three streams anew."""
    buffering = 1 if stream.line_buffering else -1
    return open(
        stream.fileno(), mode, buffering, stream.encoding, stream.errors, None if mode == "r" else "\n", False
    )


if __name__ == "__main__":
    # Ctrl-C is for the tests, whose end is ours.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import_module("spanmq.cli.commands").program()
    for name in MORE.split():
        import_module(name)
    gc.collect()
    gc.freeze()
    nurse(socket.socket(fileno=int(sys.argv[1])))
    import_module("spanmq.cli").main()
