"""A Spark session that is ready for the source: in this process by default, or on a cluster."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from spanmq.errors import ExtraNotInstalledError
from spanmq_spark.programs import java_home, python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["adopt", "session"]

# Modules, and what their packages are called. Java is looked for by java_home.
PACKAGES: Final = {
    "pyspark": "PySpark",
    "pyarrow": "pyarrow",
    "pandas": "pandas",
    "adbc_driver_manager": "adbc-driver-manager",
    "adbc_driver_postgresql": "adbc-driver-postgresql",
}
# Settings that improve the source. Not spark.sql.python.filterPushdown.enabled: with it Spark 4.3 keeps the
# filters that were pushed down for one use of a frame for its next uses, and a frame without filters has too
# few rows.
SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    # A tenth less of the JVM's time than by TCP. An executor's Python workers are on its machine.
    "spark.python.unix.domain.socket.enabled": "true",
    # The least and the greatest JSON text help no query, and to find them took a fifth of a Parquet task's
    # time: bodies begin alike, so that each is compared for long.
    "spark.hadoop.parquet.column.statistics.enabled#body": "false",
}
LOCAL_SETTINGS: Final = {
    "spark.python.daemon.module": "spanmq_spark.python_worker",
    "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.shuffle.compress": "false",
}
# What Spark starts Java with.
ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"
NAMES_MASTER: Final = re.compile(r"--master\b|\bspark\.master=")
# Its pauses do not matter here; the default collector uses a twentieth of the CPU to keep them short.
COLLECTOR: Final = "-XX:+UseParallelGC"
# How often the progress of tasks is looked at.
LOOK_SECONDS: Final = 0.5


def session(
    master: str | None = None, *, name: str = "spanmq", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Return the session that runs, or start one: `master` is `local[*]` unless spark-submit named another.

    `name` is the application's, and `settings` are Spark's own, by their names; a session that runs keeps its own.
    Spark plans with the Python of PYSPARK_PYTHON, and executors run the source by the same path: unless it is
    set, that is this Python. Raises ExtraNotInstalledError where PySpark or Java is missing.
    """
    require()
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    builder = SparkSession.builder.appName(name)
    # Where spark-submit has started Java, and with it a master.
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if master is None and not is_submitted and not NAMES_MASTER.search(os.environ.get(ARGUMENTS, "")):
        master = "local[*]"
    configuration = dict(SETTINGS)
    if master is not None:
        builder = builder.master(master)
    is_local = master is not None and master.startswith("local")
    if not is_submitted:
        os.environ["JAVA_HOME"] = str(java_home())
        os.environ.setdefault("PYSPARK_PYTHON", python() if is_local else sys.executable)
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        configuration |= LOCAL_SETTINGS
        configuration["spark.driver.extraJavaOptions"] = java_options(COLLECTOR)
        configuration["spark.sql.warehouse.dir"] = os.path.join(tempfile.gettempdir(), "spanmq-warehouse")  # noqa: PTH118
    for key, value in {**configuration, **(settings or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def require() -> None:
    """Raise ExtraNotInstalledError where a package is missing that every job needs."""
    for name, package in PACKAGES.items():
        if find_spec(name) is None:
            raise ExtraNotInstalledError(f"{package} is not installed", extra="spark")


@contextmanager
def opened(
    master: str | None = None, *, name: str = "spanmq", settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Yield a session for a block; a session that is already running is not stopped at the end."""
    was_running = is_running()
    spark = session(master, name=name, settings=settings)
    try:
        yield spark
    finally:
        if not was_running:
            spark.stop()


def java_options(more: str) -> str:
    """Return the options of a local driver's Java, which reduce its log."""
    quiet = resources.files("spanmq_spark") / "log4j2.properties"
    return f"-Dlog4j2.configurationFile={quiet} {more}"


def adopt(spark: SparkSession) -> None:
    """Make this thread one of the session's: in any other Spark finds no data source written in Python."""
    # A public call that starts it; nothing is computed.
    spark.createDataFrame([], "nothing int")


def is_running() -> bool:
    """Return whether this process has a session already, which a job then uses and does not stop."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        return False
    return SparkSession.getActiveSession() is not None


@contextmanager
def told_of_tasks(spark: SparkSession, tell: Callable[[int, int], None]) -> Iterator[None]:
    """Call `tell` during the block, now and then while tasks run: with how many are done, and of how many."""
    is_over = threading.Event()

    def look() -> None:
        tracker = spark.sparkContext.statusTracker()
        while not is_over.wait(LOOK_SECONDS):
            stages = [tracker.getStageInfo(stage_id) for stage_id in tracker.getActiveStageIds()]
            known = [(stage.numCompletedTasks, stage.numTasks) for stage in stages if stage is not None]
            if known:
                tell(sum(done for done, _ in known), sum(n for _, n in known))

    thread = threading.Thread(target=look, name="spanmq progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
