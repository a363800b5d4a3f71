"""A server as a distribution installs it: Debian's PostgreSQL with LLVM, and every setting at its default.

The suite's own server comes from a wheel that is built without LLVM, so that nothing can be compiled there.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from tests.patience import is_answered, wait_until

from spanmq import schema

# From 15 on pg_stat_statements counts what was compiled. From 18 on a pin adds nothing to a plan's cost.
VERSIONS = (15, 16, 17)
SETTINGS = ("-c", "listen_addresses=", "-c", "shared_preload_libraries=pg_stat_statements")


def find_programs() -> Path | None:
    """Return the folder of an installed server's programs that compiles plans; None if there is none."""
    for version in VERSIONS:
        folder = Path(f"/usr/lib/postgresql/{version}")
        extension = Path(f"/usr/share/postgresql/{version}/extension/pg_stat_statements.control")
        needed = (folder / "bin/initdb", folder / "bin/postgres", folder / "lib/llvmjit.so", extension)
        if all(path.exists() for path in needed):
            return folder / "bin"
    return None


@pytest.fixture(scope="session")
def default_server() -> Iterator[str]:
    """Return the DSN of a server whose only setting is that it counts statements."""
    programs = find_programs()
    if programs is None:
        pytest.skip("PostgreSQL 15 to 17 with LLVM is not installed (Debian: apt install postgresql-15)")
    # Not tmp_path: a socket's path has at most a hundred characters.
    folder = Path(tempfile.mkdtemp(prefix="spanmq-default-"))
    as_user = []
    if os.geteuid() == 0:
        # PostgreSQL refuses to run as root.
        as_user = ["--reuid=nobody", "--regid=nogroup", "--clear-groups"]
        shutil.chown(folder, "nobody", "nogroup")
    # The server ends with the tests even if they are killed.
    command = ["setpriv", *as_user, "--pdeathsig=QUIT"]
    data = folder / "data"
    subprocess.run(
        [*command, programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "--no-sync"],
        check=True,
        capture_output=True,
        cwd="/",
    )
    log = (folder / "log").open("w")
    server = subprocess.Popen(
        [*command, programs / "postgres", "-D", data, "-k", folder, *SETTINGS],
        stdout=log,
        stderr=subprocess.STDOUT,
        cwd="/",
    )
    try:
        dsn = make_conninfo(host=str(folder), user="postgres", dbname="postgres")
        wait_until(lambda: is_answered(dsn), server)
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("create extension pg_stat_statements")
            schema.install(connection)
        yield dsn
    finally:
        server.terminate()
        server.wait()
        log.close()
        shutil.rmtree(folder, ignore_errors=True)
