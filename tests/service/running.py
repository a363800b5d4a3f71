"""A service as a user runs it: in a process of its own, on a port that is free."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from psycopg.conninfo import make_conninfo
from tests.cli.forked import Forked
from tests.cli.program import environment, records
from tests.patience import WAIT_SECONDS


@dataclass(frozen=True)
class Running:
    """A service that takes requests."""

    address: str
    process: subprocess.Popen[bytes]
    log: Path

    def client(self, token: str | None = None, **more: Any) -> httpx.Client:
        """Give an HTTP client; without a proxy, whatever the environment says."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return httpx.Client(
            base_url=self.address, headers=headers, timeout=WAIT_SECONDS, trust_env=False, **more
        )

    def stop(self) -> int:
        """Ask it to end, and give its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(WAIT_SECONDS)

    def kill(self) -> None:
        """End it as a failing machine would."""
        self.process.kill()
        self.process.wait(WAIT_SECONDS)


def patient(dsn: str) -> str:
    """Give a DSN whose sessions wait for locks as long as the test holds them."""
    return make_conninfo(dsn, options="-c lock_timeout=0 -c statement_timeout=0")


@contextmanager
def service(
    dsn: str, folder: Path, *options: str | float, tokens: bool = False, more: Mapping[str, str] | None = None
) -> Iterator[Running]:
    """Run one; its log goes to a file, which grows without anybody reading it."""
    chosen = () if tokens else ("--without-tokens",)
    log = folder / "service.log"
    with log.open("ab") as errors:
        process = Forked(
            ["serve", "--port", "0", "--json", *chosen, *map(str, options)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment(dsn, more),
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, f"{process.wait(WAIT_SECONDS)} {log.read_text()}"
        yield Running(json.loads(line)["address"], process, log)
    finally:
        process.kill()
        process.communicate()


def token(dsn: str, name: str, *, queues: str = "*", verbs: str = "send,receive,look,manage") -> str:
    """Make a token and give its secret."""
    options = [f"--queue={queue}" for queue in queues.split(",")] + [f"--verb={v}" for v in verbs.split(",")]
    [made] = records("tokens", "create", name, *options, dsn=dsn)
    return str(made["token"])


def open_files(process: subprocess.Popen[bytes]) -> int:
    """Count what a process has open."""
    return len(list(Path(f"/proc/{process.pid}/fd").iterdir()))


def certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate for this machine, and its key."""
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
