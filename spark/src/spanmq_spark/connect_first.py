"""The Python process of a stream's source: it connects to the JVM first, and then imports PySpark.

Spark gives it ten seconds to connect (SPARK-45245), which no setting changes: a busy machine may take longer to
import PySpark (SPARK-56062), and the stream ends with "Python worker failed to connect back". Once it is connected,
the JVM waits.
`-m spanmq_spark.connect_first MODULE` runs a module of PySpark's this way, where Spark listens on a unix
socket; see programs.py. (Other processes are forked by a daemon, for which Spark waits.)
"""

import os
import runpy
import socket
import sys
from importlib import import_module
from typing import Any, Final

SOCKET: Final = "PYTHON_WORKER_FACTORY_SOCK_PATH"


def main(module: str) -> None:
    """Connect, and run the module."""
    path = os.environ[SOCKET]
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connected.connect(path)
    worker_util: Any = import_module("pyspark.worker_util")
    connect = worker_util.local_connect_and_auth

    def given(place: Any, secret: str | None) -> Any:
        if place != path:
            return connect(place, secret)
        # As PySpark opens it; what is not read in this time ends the process.
        connected.settimeout(int(os.environ.get("SPARK_AUTH_SOCKET_TIMEOUT", "15")))
        return connected.makefile("rwb", int(os.environ.get("SPARK_BUFFER_SIZE", "65536"))), connected

    worker_util.local_connect_and_auth = given
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1])
