"""Slow clients hold up no one else: those that send slowly, and those that take nothing of their answers."""

import asyncio
import signal
import socket
from contextlib import ExitStack, suppress
from pathlib import Path
from time import monotonic
from urllib.parse import urlsplit

import httpx
from service.tests.running import Running, service, service_process
from service.tests.test_limits import HEAD, rest
from tests.cli.program import do, wait_until
from tests.patience import WAIT_SECONDS

from spanmq_service.server import BYTES_MIN, SlowReader

READ_SECONDS = 10
SIZE = 12_000_000
# In the system's table: the states of sockets that only listen, and the place of their inodes.
LISTENS, STATE, LOCAL, INODE = "0A", 3, 1, 9


def connections_held(port: int) -> int:
    """Count the connections to a port that the process there has not closed."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(
        row[LOCAL].endswith(f":{port:04X}") and row[STATE] != LISTENS and row[INODE] != "0" for row in rows
    )


def test_slow_clients_keep_nobody_waiting(shared: Running, service_database: str) -> None:
    do(service_database, "select pgmq.create('orders')")
    with ExitStack() as stack, shared.client() as client:
        for _ in range(100):
            slow = stack.enter_context(shared.dial())
            slow.sendall(f"{HEAD}Content-Length: 100\r\n\r\n".encode())
        assert client.post("/v1/queues/orders/messages", json={"body": 1}).status_code == 201


def test_who_takes_his_answer_gets_the_whole_of_it(
    http: httpx.Client, service_database: str, queue: str
) -> None:
    do(service_database, f"select pgmq.send('{queue}', to_jsonb(repeat('x', {SIZE})))")
    assert len(http.get(f"/v1/queues/{queue}/messages").content) > SIZE
    do(service_database, f"select pgmq.drop_queue('{queue}')")


def test_who_takes_nothing_of_his_answer_is_hung_up_on(orders: str, tmp_path: Path) -> None:
    do(orders, f"select pgmq.send('orders', to_jsonb(repeat('x', {SIZE})))")
    with service(orders, tmp_path, "--read-timeout", 5) as running, running.client() as client:
        place = urlsplit(running.address)
        before = connections_held(place.port or 0)
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            slow.connect((place.hostname, place.port))
            slow.sendall(b"GET /v1/queues/orders/messages HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert slow.recv(1) == b"H"
            # He has not hung up: the service has.
            wait_until(lambda: connections_held(place.port or 0) == before)
            slow.settimeout(WAIT_SECONDS)
            assert len(rest(slow)) < SIZE
        assert client.get("/v1/queues").status_code == 200


def test_reader_is_not_cut_off_for_the_time_that_the_service_stood_still(orders: str, tmp_path: Path) -> None:
    do(orders, f"select pgmq.send('orders', to_jsonb(repeat('x', {SIZE})))")
    with (
        service_process(orders, tmp_path, "--read-timeout", READ_SECONDS) as running,
        running.dial() as reader,
    ):
        reader.sendall(
            b"GET /v1/queues/orders/messages HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )
        # The system takes what it can; the rest waits in the service.
        count, begun_at = len(reader.recv(1)), monotonic()
        wait_until(lambda: monotonic() > begun_at + 0.5)
        running.process.send_signal(signal.SIGSTOP)
        until = monotonic() + 1.25 * READ_SECONDS
        reader.settimeout(0.1)
        while monotonic() < until:
            with suppress(TimeoutError):
                count += len(reader.recv(1_000_000))
        running.process.send_signal(signal.SIGCONT)
        reader.settimeout(WAIT_SECONDS)
        assert count + len(rest(reader)) > SIZE


class Wire:
    """Of which so much is taken at each look; then nothing more."""

    def __init__(self, *left: int) -> None:
        self.left = list(left)
        self.is_aborted = asyncio.Event()

    def get_write_buffer_size(self) -> int:
        return self.left.pop(0) if len(self.left) > 1 else self.left[0]

    def abort(self) -> None:
        self.is_aborted.set()


def looks_until_aborted(*left: int) -> int:
    """Return how many looks were left when the connection was cut off."""

    async def watch() -> int:
        wire = Wire(*left)
        SlowReader(wire, asyncio.get_running_loop(), 0.001).begin()
        await asyncio.wait_for(wire.is_aborted.wait(), WAIT_SECONDS)
        return len(wire.left)

    return asyncio.run(watch())


def test_who_takes_a_little_each_time_may_go_on() -> None:
    # Each look reads the size twice: what is left now, and what the next look compares with.
    steady = [each for number in range(19, 0, -1) for each in (BYTES_MIN * number,) * 2]
    assert looks_until_aborted(20 * BYTES_MIN, *steady) == 1
    # The last look is repeated.
    assert looks_until_aborted(100 * BYTES_MIN, *(99 * BYTES_MIN + 1,) * 2, 0, 0, 0) == 3


def test_who_has_taken_it_is_left_alone() -> None:
    async def watch() -> bool:
        wire = Wire(BYTES_MIN)
        loop = asyncio.get_running_loop()
        reader, other = SlowReader(wire, loop, 0.001), Wire(BYTES_MIN)
        reader.begin()
        reader.end()
        # One that began later has looked: so would this one have.
        SlowReader(other, loop, 0.001).begin()
        await asyncio.wait_for(other.is_aborted.wait(), WAIT_SECONDS)
        return wire.is_aborted.is_set()

    assert not asyncio.run(watch())
