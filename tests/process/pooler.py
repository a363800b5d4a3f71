"""PgBouncer in transaction mode, where it is installed: every statement may meet another session."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from tests.patience import is_answered, wait_until

# Debian's place is on no ordinary user's path.
PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


@contextmanager
def pooler(database: str, *, user: str | None = None) -> Iterator[str]:
    """Yield a DSN that leads to a database through a pooler with three sessions, of a user if one is named.

    Skips the test where PgBouncer is not installed.
    """
    if PROGRAM is None:
        pytest.skip("PgBouncer is not installed (Debian: apt install pgbouncer)")
    parts: dict[str, Any] = conninfo_to_dict(database)
    # Not tmp_path: a socket's path has at most a hundred characters, and it becomes another user's.
    folder = Path(tempfile.mkdtemp(prefix="spanmq-pooler-"))
    folder.chmod(0o777)
    configuration = folder / "pgbouncer.ini"
    configuration.write_text(
        "[databases]\n"
        f"* = host={parts['host']} port={parts.get('port', 5432)} user={user or parts['user']}\n"
        "[pgbouncer]\n"
        f"unix_socket_dir = {folder}\nlisten_port = 6432\nauth_type = any\n"
        "pool_mode = transaction\ndefault_pool_size = 3\nserver_round_robin = 1\nlogfile = /dev/null\n"
    )
    # It refuses to be root; the embedded server gives its socket to the same user.
    command = [PROGRAM, *(["-u", "nobody"] if os.geteuid() == 0 else []), str(configuration)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    dsn = make_conninfo(**{**parts, "host": str(folder), "port": 6432})
    try:
        wait_until(lambda: is_answered(dsn), process)
        # All three sessions at once, or the pooler would make do with one.
        with ExitStack() as stack:
            for _ in range(3):
                stack.enter_context(psycopg.connect(dsn, prepare_threshold=None)).execute("select 1")
        yield dsn
    finally:
        process.kill()
        process.communicate()
        shutil.rmtree(folder, ignore_errors=True)
