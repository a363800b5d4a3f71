"""A cluster of Spark's own kind (standalone), with two hosts: two addresses of loopback.

Spark runs no speculative copy of a task on the host of its first attempt: not in local mode, and not on a
`local-cluster`, whose workers all have the machine's name.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pyspark
from spark.tests.process.object_store import answers
from spark.tests.process.rabbit import free_ports
from spark.tests.real_session import FRUGAL
from tests.patience import WAIT_SECONDS, wait_until

from spanmq_spark.programs import java_home

HOSTS: Final = ("127.0.0.1", "127.0.0.2")
# What an executor has at least, and what a worker offers: one executor of one core.
EXECUTOR: Final = "512m"
OFFER: Final = "1g"
SECONDS: Final = 300.0
LAUNCHER: Final = Path(pyspark.__file__).parent / "bin" / "spark-class"


class Cluster:
    """A master, and a worker with one core on each host; `url` names it to a session.

    Processes that executors start have `python_path`, without it that of this process.
    """

    def __init__(self, folder: Path, python_path: Sequence[str] | None = None) -> None:
        self._folder = folder
        self._python_path = sys.path if python_path is None else python_path
        self._processes: list[subprocess.Popen[bytes]] = []
        self._workers: dict[str, subprocess.Popen[bytes]] = {}
        [self._port] = free_ports(1)
        self.url = f"spark://{HOSTS[0]}:{self._port}"

    def __enter__(self) -> Self:
        address = ["--host", HOSTS[0], "--port", str(self._port)]
        self._start("master", HOSTS[0], "master.Master", *address)
        try:
            wait_until(lambda: answers(self._port), self._processes[0], seconds=SECONDS)
            for host in HOSTS:
                offer = ["--host", host, "--cores", "1", "--memory", OFFER]
                work = ["--work-dir", str(self._folder / f"work-{host}")]
                words = [*offer, *work, self.url]
                self._workers[host] = self._start(f"worker-{host}", host, "worker.Worker", *words)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def kill(self, host: str) -> None:
        """Kill the worker of a host with its executor; what the latter started ends with it."""
        os.killpg(self._workers[host].pid, signal.SIGKILL)

    def _start(self, name: str, host: str, program: str, *words: str) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "JAVA_HOME": str(java_home()),
            # Where their pages listen, too.
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": FRUGAL,
            # For the processes that executors start.
            "PYTHONPATH": os.pathsep.join(self._python_path),
        }
        with (self._folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [LAUNCHER, f"org.apache.spark.deploy.{program}", "--webui-port", "0", *words],
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def _stop(self) -> None:
        """Stop the workers, which stop their executors, then the master."""
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
        for process in reversed(self._processes):
            try:
                process.wait(WAIT_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def await_file(path: Path, maker: subprocess.Popen[Any] | None = None) -> None:
    """Wait until another process has made a file; one that is given must not end before."""
    wait_until(path.exists, *([maker] if maker is not None else []), seconds=SECONDS)
