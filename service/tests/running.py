"""A service with real connections on a port that is free: in a thread of this process, or in a process."""

import json
import logging
import signal
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from psycopg.conninfo import make_conninfo
from service.tests.described import check_described
from tests.cli.program import started
from tests.patience import WAIT_SECONDS

from spanmq.cli.log_lines import OneLine
from spanmq.client import Client
from spanmq_service.dashboard import pages
from spanmq_service.server import Server, make_server
from spanmq_service.settings import Settings

# To read the machine's certificates takes longer than a request. A test of TLS brings its own.
TLS = ssl.create_default_context()


@dataclass(frozen=True)
class Running:
    """A service that takes requests."""

    address: str
    log: Path
    server: Server | None = None

    def client(self, token: str | None = None, *, checked: bool = True, **more: Any) -> httpx.Client:
        """Return an HTTP client; without a proxy, whatever the environment says.

        It fails for an answer that is not as the service describes it, unless that is not to be `checked`.
        """
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return httpx.Client(
            base_url=self.address,
            headers=headers,
            timeout=WAIT_SECONDS,
            trust_env=False,
            event_hooks={"response": [check_described] if checked else []},
            **{"verify": TLS, **more},
        )

    @contextmanager
    def clients(self, dsn: str, *names: str) -> Iterator[list[httpx.Client]]:
        """Return a client for each name, with a token of that name that may do everything."""
        with ExitStack() as stack:
            yield [stack.enter_context(self.client(token(dsn, name))) for name in names]

    def dial(self) -> socket.socket:
        """Open a connection that speaks no HTTP by itself, and receives little that is not read."""
        place = urlsplit(self.address)
        connection = socket.socket()
        # Before connecting: otherwise the system may take megabytes that nobody reads.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(WAIT_SECONDS)
        connection.connect((place.hostname, place.port))
        return connection

    def stop(self) -> None:
        """Ask it to end."""
        assert self.server is not None
        self.server.should_exit = True


@dataclass(frozen=True, kw_only=True)
class Process(Running):
    """A service in a process of its own."""

    process: subprocess.Popen[bytes]

    def stop(self) -> None:
        """Ask it to end, and wait for its good end."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(WAIT_SECONDS) == 0

    def kill(self) -> None:
        """End it as a failing machine would."""
        self.process.kill()
        self.process.wait(WAIT_SECONDS)


async def always() -> bool:
    """Permit a request to wait."""
    return True


def patient(dsn: str) -> str:
    """Return a DSN whose sessions wait for locks as long as the test holds them."""
    return make_conninfo(dsn, options="-c lock_timeout=0 -c statement_timeout=0")


@contextmanager
def service(
    dsn: str,
    folder: Path,
    *options: str | float,
    tokens: bool = False,
    dashboard: bool = True,
    more: Mapping[str, str] | None = None,
) -> Iterator[Running]:
    """Run one in a thread; `options` are those of the command, each with its value."""
    # On a busy machine an honest client may seem slow, and so may the server.
    chosen: dict[str, Any] = {"read_timeout": WAIT_SECONDS, "pool_timeout": 30.0} | {
        str(name).removeprefix("--").replace("-", "_"): Path(str(value)) if "tls" in str(name) else value
        for name, value in zip(options[::2], options[1::2], strict=True)
    }
    level = logging.getLevelNamesMapping()[str(chosen.pop("log_level", "info")).upper()]
    settings = Settings(dsn=dsn, port=0, with_tokens=tokens, **chosen)
    addresses: SimpleQueue[str | None] = SimpleQueue()
    with pytest.MonkeyPatch.context() as patch:
        for name, text in (more or {}).items():
            patch.setenv(name, text)
        server = make_server(settings, pages=pages if dashboard else None, announce=addresses.put)

    def run() -> None:
        try:
            server.run()
        finally:
            addresses.put(None)

    log = folder / "service.log"
    thread = threading.Thread(target=run)
    with logged(log, level):
        thread.start()
        try:
            address = addresses.get()
            assert address is not None, log.read_text()
            yield Running(address, log, server)
        finally:
            server.should_exit = True
            thread.join(WAIT_SECONDS)
            assert not thread.is_alive(), "the service does not end"


@contextmanager
def logged(log: Path, level: int) -> Iterator[None]:
    """Write what services say in this process to a file."""
    handler = logging.FileHandler(log)
    handler.setFormatter(OneLine())
    loggers = {name: logging.getLogger(name) for name in ("spanmq", "uvicorn", "psycopg")}
    loggers["spanmq"].setLevel(level)
    loggers["uvicorn"].setLevel(max(level, logging.WARNING))
    for each in loggers.values():
        each.addHandler(handler)
    try:
        yield
    finally:
        for each in loggers.values():
            each.removeHandler(handler)
            each.setLevel(logging.NOTSET)
        handler.close()


@contextmanager
def service_process(dsn: str, folder: Path, *options: str | float, tokens: bool = False) -> Iterator[Process]:
    """Run one in a process of its own; its log goes to a file, which grows without anybody reading it."""
    chosen = () if tokens else ("--without-tokens",)
    log = folder / "service.log"
    with (
        log.open("ab") as errors,
        started(
            "serve", "--port", 0, "--json", *chosen, *map(str, options), dsn=dsn, stderr=errors
        ) as process,
    ):
        line = process.stdout.readline()
        assert line, f"{process.wait(WAIT_SECONDS)} {log.read_text()}"
        yield Process(json.loads(line)["address"], log, process=process)


def token(dsn: str, name: str, *, queues: str = "*", verbs: str = "send,receive,look,manage") -> str:
    with Client(dsn, pool_size=1) as client:
        return client.admin.tokens.create(name, queues=queues.split(","), verbs=verbs.split(","))


def certificate(folder: Path) -> tuple[Path, Path]:
    """Create a certificate for this machine, and its key."""
    made, key = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-keyout", str(key), "-out", str(made), "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
        ],
        capture_output=True,
        check=True,
    )
    return made, key
