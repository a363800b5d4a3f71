"""PySpark's daemon, which forks a Python process for each task, without a word where a task ended early.

When a task fails, the JVM may have closed its end before Python's last flush: PySpark prints a stack then, beside the
error that the job reports anyway (SPARK-54344), and no setting changes that. The same happens when the JVM closes a
data source early. Spark runs this module as `spark.python.daemon.module`, and see programs.py.
"""

import os
import socket

from pyspark import daemon

_work = daemon.worker


def work(sock: socket.socket, authenticated: bool) -> int:
    """Serve a task; returns the exit code."""
    try:
        return _work(sock, authenticated)
    except (BrokenPipeError, ConnectionResetError):
        return 1


if __name__ == "__main__":
    # To raise what it would print.
    os.environ["PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE"] = "1"
    daemon.worker = work
    daemon.manager()
