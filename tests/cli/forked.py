"""Runs of the program that a nursery forks: processes of their own, whose Python has imported it already."""

from __future__ import annotations

import atexit
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

NURSERY = Path(__file__).with_name("nursery.py")
# What Python looks at when it starts.
EARLY = ("PYTHON", "LC_", "LANG", "TZ")
_starting = threading.Lock()
_nurseries: dict[frozenset[tuple[str, str]], socket.socket] = {}


class Forked(subprocess.Popen[bytes]):
    """A process as `subprocess` has them, that is no child of ours."""

    def __init__(
        self,
        arguments: Sequence[str | bytes],
        *,
        env: Mapping[str, str],
        cwd: Path | None = None,
        stdin: int | IO[bytes] | None = None,
        stdout: int | IO[bytes] | None = None,
        stderr: int | IO[bytes] | None = None,
    ) -> None:
        self.args = ["spanmq", *arguments]
        self.returncode: int | None = None
        self._own, theirs = socket.socketpair()
        given: list[int] = [theirs.fileno()]
        opened = [theirs.detach()]
        streams: list[IO[bytes] | None] = []
        for number, wanted in enumerate((stdin, stdout, stderr)):
            stream, file = _stream(number, wanted)
            streams.append(stream)
            given.insert(number, file)
            if wanted in (subprocess.PIPE, subprocess.DEVNULL):
                opened.append(file)
        self.stdin, self.stdout, self.stderr = streams
        try:
            socket.send_fds(_nursery(env), [b"!"], given)
        finally:
            for file in opened:
                os.close(file)
        request = {
            "arguments": [os.fsdecode(each) for each in arguments],
            "environment": dict(env),
            "folder": str(cwd or Path.cwd()),
        }
        self._own.sendall(json.dumps(request).encode())
        self._own.shutdown(socket.SHUT_WR)
        said, [self._hold], _, _ = socket.recv_fds(self._own, 32, 1)
        self.pid = int(said)

    def poll(self) -> int | None:
        """Tell how it has ended, if it has."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        if self.returncode is None:
            with selectors.DefaultSelector() as selector:
                selector.register(self._own, selectors.EVENT_READ)
                if not selector.select(timeout):
                    raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = os.waitstatus_to_exitcode(int(self._own.recv(32)))
            self._own.close()
            os.close(self._hold)
        return self.returncode

    def send_signal(self, sig: int) -> None:
        """Send it a signal, if it is there; never to another that got its id since."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._hold, sig)

    def communicate(
        self,
        input: bytes | None = None,  # noqa: A002, as Popen calls it
        timeout: float | None = None,
    ) -> tuple[bytes, bytes]:
        """Write all input, read all output, and wait for its end."""
        deadline = None if timeout is None else time.monotonic() + timeout
        found: dict[Any, bytes] = {self.stdout: b"", self.stderr: b""}
        rest = memoryview(input or b"")
        with selectors.DefaultSelector() as selector:
            for output in (self.stdout, self.stderr):
                if output is not None and not output.closed:
                    selector.register(output, selectors.EVENT_READ)
            if self.stdin is not None and not self.stdin.closed:
                with suppress(BrokenPipeError):
                    self.stdin.flush()
                os.set_blocking(self.stdin.fileno(), False)
                selector.register(self.stdin, selectors.EVENT_WRITE)
            while selector.get_map():
                ready = selector.select(_left(deadline))
                if not ready and deadline is not None:
                    raise subprocess.TimeoutExpired(self.args, timeout or 0)
                for key, _ in ready:
                    stream: Any = key.fileobj
                    if stream is self.stdin:
                        try:
                            rest = rest[os.write(key.fd, rest) :] if rest else rest
                        except BrokenPipeError:
                            rest = rest[len(rest) :]
                        ended = not rest
                    else:
                        piece = os.read(key.fd, 1 << 16)
                        found[stream] += piece
                        ended = not piece
                    if ended:
                        selector.unregister(stream)
                        with suppress(BrokenPipeError):
                            stream.close()
        self.wait(_left(deadline))
        return found[self.stdout], found[self.stderr]


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def _stream(number: int, wanted: int | IO[bytes] | None) -> tuple[IO[bytes] | None, int]:
    """Give our end of a stream, if there is one, and theirs."""
    if wanted is None:
        return None, number
    if wanted == subprocess.DEVNULL:
        return None, os.open(os.devnull, os.O_RDWR)
    if wanted != subprocess.PIPE:
        return None, wanted if isinstance(wanted, int) else wanted.fileno()
    reads, writes = os.pipe()
    if number == 0:
        return os.fdopen(writes, "wb"), reads
    return os.fdopen(reads, "rb"), writes


def _nursery(env: Mapping[str, str]) -> socket.socket:
    """Give the socket of this process's nursery whose Python has started in such an environment."""
    early = frozenset(each for each in env.items() if each[0].startswith(EARLY))
    with _starting:
        if early not in _nurseries:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                process = subprocess.Popen(
                    [sys.executable, str(NURSERY), str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    env=env,
                    pass_fds=[theirs.fileno()],
                )
            _nurseries[early] = ours
            atexit.register(_end, ours, process)
        return _nurseries[early]


def _end(ours: socket.socket, process: subprocess.Popen[bytes]) -> None:
    ours.close()
    process.wait()
