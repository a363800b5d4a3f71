"""The process: uvicorn with time limits for slow clients, its sockets and its shutdown."""

import asyncio
import errno
import json
import logging
import resource
import signal
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from spanmq.errors import NotPossibleError
from spanmq_service.app import Pages, create_app
from spanmq_service.backend import Backend
from spanmq_service.guard.gate import DRAIN
from spanmq_service.http.failure import body_of
from spanmq_service.settings import Settings

logger = logging.getLogger("spanmq.service")

HEADER_BYTES_MAX: Final = 64 * 1024
# A client must read this many bytes within the time limit: even slow mobile connections do.
BYTES_MIN: Final = 16 * 1024
# If this process itself stood still, the loop notices the time limit before it sends more.
AGAIN_SECONDS: Final = 0.1
KEEP_ALIVE_SECONDS: Final = 75
# uvicorn's own default: connections that wait to be accepted.
BACKLOG: Final = 2048
# Open files beside those of current requests: idle connections, the database's, files.
OTHER_FILES: Final = 1_000
_NO_HTTP: Final = json.dumps(body_of("invalid_request", "this is not an HTTP request")).encode()


class SlowReader:
    """Closes the connection of a client that does not read its response, which takes memory meanwhile."""

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._transport = transport
        self._loop = loop
        self._seconds = seconds
        self._left = 0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Start the time limit: data waits to be sent."""
        self._left = self._transport.get_write_buffer_size()
        self.end()
        self._timer = self._loop.call_later(self._seconds, self._look, AGAIN_SECONDS)

    def end(self) -> None:
        """Stop the time limit: little data is left, or the connection is closed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, again: float | None = None) -> None:
        if self._left - self._transport.get_write_buffer_size() >= BYTES_MIN:
            self.begin()
        elif again is not None:
            self._timer = self._loop.call_later(again, self._look)
        else:
            # Not close(), which would wait until it has been sent.
            self._transport.abort()


class Protocol(HttpToolsProtocol):
    """HTTP with limits on the time and size of request headers, and on the time that a client takes to read.

    A connection that sends or reads slowly uses few resources.
    """

    # Set by the running service: seconds for the headers of a request, and for the client to read a part of
    # the response.
    header_seconds = 20.0
    _slow_reader: SlowReader
    _header_timer: asyncio.TimerHandle | None = None
    _header_bytes = 0
    _has_headers = False

    def connection_made(self, transport: Any) -> None:
        """Wait for the first request, up to a time limit."""
        super().connection_made(transport)
        self._slow_reader = SlowReader(transport, self.loop, self.header_seconds)
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timers."""
        self._end_timer()
        self._slow_reader.end()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """Start the time limit, also for a further request on the same connection."""
        super().on_message_begin()
        self._header_bytes = 0
        self._has_headers = False
        self.scope[DRAIN] = self.flow.drain  # type: ignore[typeddict-unknown-key]
        if self._header_timer is None:
            self._await_headers()

    def on_url(self, url: bytes) -> None:
        """Count the bytes of the request line."""
        if self._counts(len(url)):
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count the bytes of a header; one after the body, a trailer, has no effect.

        Else a proxy that checks or removes headers could be passed by a trailer `Authorization`.
        """
        if self._counts(len(name) + len(value)) and not self._has_headers:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Serve the request, unless the connection is being closed."""
        self._end_timer()
        self._has_headers = True
        if not self.transport.is_closing():
            super().on_headers_complete()

    def pause_writing(self) -> None:
        """Wait until the client has read more, up to a time limit."""
        super().pause_writing()
        self._slow_reader.begin()

    def resume_writing(self) -> None:
        """Resume writing."""
        super().resume_writing()
        self._slow_reader.end()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection without further requests."""
        if self.transport.get_write_buffer_size():
            # The client has not read the end of the last response: closing would wait for that.
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002, its text is not in our format
        """Answer a request that is not valid HTTP with an error in the common shape."""
        head = (
            "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n"
            f"content-length: {len(_NO_HTTP)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + _NO_HTTP)
        self.transport.close()

    def _counts(self, size: int) -> bool:
        self._header_bytes += size
        if self._header_bytes > HEADER_BYTES_MAX:
            self._hang_up()
            return False
        return True

    def _await_headers(self) -> None:
        self._header_timer = self.loop.call_later(self.header_seconds, self._hang_up)

    def _end_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _hang_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()


class Server(uvicorn.Server):
    """A server that announces its address, and whose stop is not an error."""

    def __init__(self, config: uvicorn.Config, backend: Backend, announce: Callable[[str], None]) -> None:
        super().__init__(config)
        self._backend = backend
        self._announce = announce
        self.ended_by: signal.Signals | None = None

    async def startup(self, sockets: list[Any] | None = None) -> None:
        """Listen, and announce the address."""
        settings = self._backend.settings
        await super().startup(sockets or listening(settings.host, settings.port))
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            self._announce(f"{self._backend.settings.scheme}://{shown}:{port}")

    async def shutdown(self, sockets: list[Any] | None = None) -> None:
        """Answer the waiting requests, finish the current ones, and stop."""
        self._backend.stop()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Stop at SIGTERM and SIGINT, at once at the second signal; do not raise the signal again afterwards."""
        if threading.current_thread() is not threading.main_thread():  # only it gets signals
            yield
            return
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    def _stop(self, number: signal.Signals) -> None:
        if self.should_exit:
            self.force_exit = True
        self.ended_by = number
        self.should_exit = True


def listening(host: str, port: int) -> list[socket.socket]:
    """Return sockets that listen on all addresses of a host; raises NotPossibleError."""
    sockets: list[socket.socket] = []
    try:
        for family, _, _, _, address in socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            sockets.append(socket.create_server(address, family=family, backlog=BACKLOG))
    except OSError as error:
        for listener in sockets:
            listener.close()
        if error.errno == errno.EADDRINUSE:
            raise NotPossibleError(
                f"{host}:{port} is in use by another program",
                hint="Choose another port with --port; 0 selects a free one.",
                code="service_not_available",
            ) from error
        raise NotPossibleError(
            f"{host}:{port} can't be listened on: {error.strerror}", code="service_not_available"
        ) from error
    return sockets


def serve(
    settings: Settings,
    *,
    pages: Pages | None = None,
    announce: Callable[[str], None] = lambda address: logger.info("service_started address=%s", address),
) -> signal.Signals | None:
    """Serve until a signal, and return it; `announce` gets the address once requests are accepted."""
    _allow_open_files(settings)
    server = make_server(settings, pages=pages, announce=announce)
    server.run()
    return server.ended_by


def make_server(settings: Settings, *, pages: Pages | None, announce: Callable[[str], None]) -> Server:
    """Return a server that is not running yet."""
    app = create_app(settings, pages=pages)
    protocol = type("TimedProtocol", (Protocol,), {"header_seconds": settings.read_timeout})
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=protocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=settings.trusted_proxies,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=round(settings.grace),
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
    )
    return Server(config, app.state.backend, announce)


def _allow_open_files(settings: Settings) -> None:
    """Raise this process's limit of open files; logs a warning if the system's limit is lower."""
    needed = (
        2 * settings.requests_max
        + 3 * settings.anonymous_max
        + settings.waiting_max
        + settings.pool_size
        + OTHER_FILES
    )
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most < needed:
        logger.warning("open_files_few open_files_max=%s needed=%s", most, needed)
