"""The Python processes that Spark starts, with two parts of PySpark replaced; see programs.py.

`python -m spanmq_spark.python_worker MODULE` runs a module of PySpark's that Spark waits for on a unix socket, such as
that of a stream's source; or else PySpark's daemon, which forks a process for each task. If PySpark has no such part,
its own module runs as it is.
"""

import os
import runpy
import socket
import sys
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

# The socket on which Spark waits for this process; a daemon gets a folder for sockets.
SOCKET: Final = "PYTHON_WORKER_FACTORY_SOCK_PATH"
# The function by which PySpark's worker_util connects.
CONNECT: Final = "local_connect_and_auth"
DAEMON: Final = "pyspark.daemon"


def connect_first(module: str) -> None:
    """Connect to the JVM, and then import PySpark and run its module.

    Spark gives a process ten seconds to connect (SPARK-45245), which no setting changes: a busy machine may take longer
    to import PySpark (SPARK-56062), and the stream ends with "Python worker failed to connect back". Once it is
    connected, the JVM waits.
    """
    if not _connects_so():
        _run(module)
        return
    path = os.environ[SOCKET]
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connected.connect(path)
    worker_util: Any = import_module("pyspark.worker_util")
    connect = getattr(worker_util, CONNECT)

    def connection(place: Any, *arguments: Any) -> Any:
        if place != path:
            return connect(place, *arguments)
        # As PySpark opens it; what is not read in this time ends the process.
        connected.settimeout(int(os.environ.get("SPARK_AUTH_SOCKET_TIMEOUT", "15")))
        return connected.makefile("rwb", int(os.environ.get("SPARK_BUFFER_SIZE", "65536"))), connected

    setattr(worker_util, CONNECT, connection)
    _run(module)


def run_daemon() -> None:
    """Run PySpark's daemon, whose tasks print no stack if they end early.

    When a task fails, the JVM may have closed its end before Python's last flush: PySpark prints a stack then, beside
    the error that the job reports anyway (SPARK-54344), and no setting changes that. The same happens when the JVM
    closes a data source early.
    """
    daemon: Any = import_module(DAEMON)
    manager = getattr(daemon, "manager", None)
    work = getattr(daemon, "worker", None)
    if manager is None or work is None or "worker" not in manager.__code__.co_names:
        _run(DAEMON)
        return

    def quiet(*arguments: Any) -> Any:
        try:
            return work(*arguments)
        except (BrokenPipeError, ConnectionResetError):
            return 1

    # To raise what it would print.
    os.environ["PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE"] = "1"
    daemon.worker = quiet
    manager()


def _connects_so() -> bool:
    """Return whether PySpark connects by the function that is replaced; without an import of PySpark, which is slow."""
    package = find_spec("pyspark")
    folders = (package.submodule_search_locations if package is not None else None) or ()
    with suppress(OSError):
        return any(
            f" {CONNECT}(" in (Path(folder) / "worker_util.py").read_text("utf-8") for folder in folders
        )
    return False


def _run(module: str) -> None:
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    if SOCKET in os.environ:
        connect_first(sys.argv[1])
    else:
        run_daemon()
