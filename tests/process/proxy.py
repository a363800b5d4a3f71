"""nginx with the configuration of deploy/, where it is installed."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.patience import WAIT_SECONDS, wait_until

# Debian's place is on no ordinary user's path.
PROGRAM = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
CONFIGURATION = Path(__file__).resolve().parents[2] / "deploy/nginx.conf"
# As root, the processes that serve would be another user's, which can't write into a test's folder.
GLOBALS = "daemon off;" + (" user root;" if os.geteuid() == 0 else "")


def command(folder: Path, service: str, port: int = 8080) -> list[str]:
    """Return the command that runs it for a service, `host:port`, with its files in a folder."""
    text = CONFIGURATION.read_text("utf-8").replace("server service:8080", f"server {service}")
    text = text.replace("listen 8080", f"listen 127.0.0.1:{port}").replace("/tmp/", f"{folder}/")
    # Under load an honest client may seem slow.
    text = text.replace("_timeout 20s;", f"_timeout {WAIT_SECONDS:.0f}s;")
    path = folder / "nginx.conf"
    path.write_text(text)
    assert PROGRAM is not None
    return [PROGRAM, "-c", str(path), "-g", GLOBALS]


def check(folder: Path, service: str) -> subprocess.CompletedProcess[str]:
    """Return what nginx says of the configuration."""
    return subprocess.run(
        [*command(folder, service), "-t"], capture_output=True, text=True, check=False, timeout=WAIT_SECONDS
    )


def is_listening(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def proxy(folder: Path, service: str) -> Iterator[str]:
    """Run it before a service, and yield its address; skips the test where nginx is not installed."""
    if PROGRAM is None:
        pytest.skip("nginx is not installed (Debian: apt install nginx-light)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen(command(folder, service, port)) as process:
        try:
            wait_until(lambda: is_listening(port), process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(WAIT_SECONDS)
