"""A TCP proxy before a server's socket, which can pass, swallow everything, or hang up."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal

from tests.patience import WAIT_SECONDS

Mode = Literal["pass", "stall", "drop"]


class Proxy:
    """`port` on this machine leads to a unix socket."""

    def __init__(self, socket: str) -> None:
        self._socket = socket
        self._mode: Mode = "pass"
        self._loop = asyncio.new_event_loop()
        self._passing = asyncio.Event()
        self._passing.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0
        self.connections = 0

    def set(self, mode: Mode) -> None:
        """Change what happens to all connections, those that are there and new ones."""

        async def change() -> None:
            self._mode = mode
            if mode == "stall":
                self._passing.clear()
            elif not self._passing.is_set():
                # What was swallowed once stays so: only new connections pass.
                self._passing = asyncio.Event()
                self._passing.set()
            if mode == "drop":
                for writer in tuple(self._writers):
                    writer.transport.abort()

        asyncio.run_coroutine_threadsafe(change(), self._loop).result(WAIT_SECONDS)

    async def _serve(self, ready: threading.Event, end: asyncio.Event) -> None:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        await end.wait()
        server.close()
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self._mode == "drop":
            writer.transport.abort()
            return
        self._writers.add(writer)
        passing = self._passing
        with suppress(OSError):
            await passing.wait()
            server_reader, server_writer = await asyncio.open_unix_connection(self._socket)
            self._writers.add(server_writer)
            await asyncio.gather(
                self._pump(reader, server_writer, passing), self._pump(server_reader, writer, passing)
            )

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passing: asyncio.Event
    ) -> None:
        with suppress(OSError):
            while piece := await reader.read(1 << 16):
                await passing.wait()
                writer.write(piece)
                await writer.drain()
        writer.close()
        self._writers.discard(writer)


@contextmanager
def proxying(socket: str) -> Iterator[Proxy]:
    proxy = Proxy(socket)
    ready, end = threading.Event(), asyncio.Event()
    thread = threading.Thread(target=proxy._loop.run_until_complete, args=(proxy._serve(ready, end),))
    thread.start()
    assert ready.wait(WAIT_SECONDS)
    try:
        yield proxy
    finally:
        proxy.set("pass")
        proxy._loop.call_soon_threadsafe(end.set)
        thread.join(WAIT_SECONDS)
        tasks = asyncio.all_tasks(proxy._loop)
        for task in tasks:
            task.cancel()
        if tasks:
            proxy._loop.run_until_complete(asyncio.wait(tasks))
        proxy._loop.close()
