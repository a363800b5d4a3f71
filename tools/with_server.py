"""Run a command beside a private PostgreSQL of any version: with_server.py BINARIES COMMAND …

The command finds the server's DSN in SPANMQ_TEST_DSN. The server has nothing durable, and goes with the command.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from spanmq.embedded.binaries import as_user, server_user
from spanmq.testing.databases import FAST_AND_FORGETFUL


def main() -> int:
    """Start the server, run the command, stop the server, and return the command's exit code."""
    programs, command = Path(sys.argv[1]), sys.argv[2:]
    with tempfile.TemporaryDirectory(prefix="spanmq-") as folder:
        home = Path(folder)
        data = home / "data"
        user = server_user(data)
        if user is not None:
            os.chown(home, user.uid, user.gid)
        settings = {
            **FAST_AND_FORGETFUL,
            "listen_addresses": "''",
            "unix_socket_directories": folder,
            "jit": "off",
        }
        options = " ".join(f"-c {name}={value}" for name, value in settings.items())
        control: list[str | Path] = [programs / "pg_ctl", "-D", data, "-w", "-s", "-l", home / "log"]

        def run(*arguments: str | Path) -> None:
            subprocess.run(arguments, check=True, cwd="/", stdout=subprocess.DEVNULL, **as_user(user))

        run(
            programs / "initdb",
            "-D",
            data,
            "-U",
            "postgres",
            "--auth=trust",
            "--encoding=UTF8",
            "--no-locale",
            "-N",
        )
        run(*control, "-o", options, "start")
        try:
            dsn = f"host={folder} user=postgres"
            return subprocess.run(command, check=False, env={**os.environ, "SPANMQ_TEST_DSN": dsn}).returncode
        finally:
            run(*control, "-m", "immediate", "stop")


if __name__ == "__main__":
    sys.exit(main())
