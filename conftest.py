"""What the tests of all distributions share; the fixtures named spanmq_… are those of `spanmq.testing`."""

import faulthandler
import gc
import hashlib
import ipaddress
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from psycopg.pq import TransactionStatus

from spanmq.client import Client
from spanmq.testing.databases import new_database, with_database

if TYPE_CHECKING:
    from tests.recorded import Recorded

# Of tests whose paths begin so only every fourth case is run, and of all tests a quarter of Hypothesis' examples:
# `make test` leaves the others to `make test-deep`.
SAMPLED = tuple(os.environ.get("SPANMQ_TEST_SAMPLED", "").split())
# Of tests whose paths begin so only the other three cases, and those marked `deeper`: what `make test` has not run.
REST = tuple(os.environ.get("SPANMQ_TEST_REST", "").split())
SAMPLE_STEP = 4
# A shared machine may be slow at any moment; a real hang ends at pytest's own time limit.
settings.register_profile(
    "spanmq",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    max_examples=100 // SAMPLE_STEP if SAMPLED else 100,
)
settings.load_profile("spanmq")

# Who starts the tests in the background may ignore Ctrl-C or the end of the terminal, and what is started
# here would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Of each driver that a test starts: none runs long enough to get back what Java's second compiler takes, a third of
# the processor time of a short job; and a tenth of it is spent on verifying Spark's classes.
os.environ.setdefault(
    "SPARK_SUBMIT_OPTS",
    "-XX:TieredStopAtLevel=1 -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote",
)


def seed_of_code() -> int:
    """Return a seed that each change of the code changes: a run of the same code is the same run."""
    root = Path(__file__).parent
    files = (path for folder in ("src", "*/src") for path in root.glob(f"{folder}/**/*"))
    paths = sorted(path for path in files if path.suffix in (".py", ".sql"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in paths))
    return int.from_bytes(digest.digest()[:4]) % 10**9


# Workers of a run inherit it.
if os.environ.get("SPANMQ_TEST_DEEP"):
    os.environ.setdefault("SPANMQ_TEST_SEED", str(seed_of_code()))

TEARDOWN_SECONDS = 400.0
# Tests that share a Spark session, a browser or a server, or that disturb each other, by how their paths begin: each
# group is one worker's.
GROUPS = {
    "spark/tests/session/": "spark",
    "spark/tests/process/": "spark",
    "service/tests/dashboard/test_browser": "browser",
    "service/tests/process/dashboard/": "browser",
    "lab/tests/process/test_harness": "harness",
    "tests/sql/default_settings/": "default",
}
# A copy made before pytest captures what tests write there.
STDERR = os.dup(2)


def pytest_configure(config: pytest.Config) -> None:
    """Write the tests of the synchronous client, which are not committed, before any worker looks for tests."""
    if not hasattr(config, "workerinput"):
        generator = Path(__file__).parent / "tools/generate_sync.py"
        subprocess.run([sys.executable, str(generator), "--tests"], check=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is left to `make test-deep`: the first case of each test stays; or there, what it has run."""
    if not SAMPLED and not REST:
        return
    seen: Counter[str] = Counter()
    left_out: list[pytest.Item] = []
    for item in items:
        name = item.nodeid.partition("[")[0]
        is_sampled = seen[name] % SAMPLE_STEP == 0
        seen[name] += 1
        if item.nodeid.startswith(REST) and is_sampled and not is_deeper(item):
            left_out.append(item)
        if item.nodeid.startswith(SAMPLED) and not is_sampled:
            left_out.append(item)
    config.hook.pytest_deselected(items=left_out)
    skipped = set(left_out)
    items[:] = [item for item in items if item not in skipped]


def is_deeper(item: pytest.Item) -> bool:
    """Return whether a test does more in `make test-deep`, such as random programs by another seed, or many rounds."""
    return item.get_closest_marker("deeper") is not None or hasattr(getattr(item, "obj", None), "hypothesis")


def pytest_collection_finish() -> None:
    """Keep what was imported, and all tests, out of each further search for garbage: nothing of it ends before."""
    gc.freeze()


def pytest_report_header() -> list[str]:
    """Report the seed of random programs, by which a run can be repeated."""
    seed = os.environ.get("SPANMQ_TEST_SEED")
    return [f"random programs: SPANMQ_TEST_SEED={seed}"] if seed else []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, None, None]:
    """End the process, with every thread's stack, when what a failed test left keeps its teardown waiting.

    pytest-timeout fires once a test, and pytest's own faulthandler_timeout is off after a failure.
    """
    faulthandler.dump_traceback_later(TEARDOWN_SECONDS, exit=True, file=STDERR)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep each group on one worker, by its path: pytest 9.2 hides the marker xdist_group from xdist 3.8."""
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadGroupScheduling  # type: ignore[import-untyped]

    class Grouped(LoadGroupScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return next((name for start, name in GROUPS.items() if nodeid.startswith(start)), nodeid)

    return Grouped(config, log)


@pytest.fixture
def database(spanmq_database: str) -> str:
    """The DSN of a new database with spanmq."""
    return spanmq_database


class Lent(psycopg.Connection[Any]):
    """A new connection object over a session that outlives it."""

    def __del__(self, *_: Any) -> None:
        """Leave the session open."""


@pytest.fixture(scope="session")
def lend(shared_database: str) -> Iterator[Callable[[], Lent]]:
    """A function that returns a connection over a session that other tests had before, where one is left.

    A new session would have to read the catalogs and to compile the functions: three quarters of a short test.
    """
    sessions: list[psycopg.Connection[Any]] = []

    def lend() -> Lent:
        if not sessions or sessions[-1].info.transaction_status != TransactionStatus.IDLE:
            # A test may have ended it, or left its transaction open.
            for each in sessions:
                each.close()
            sessions.append(psycopg.connect(shared_database, autocommit=True))
        # What a rollback leaves.
        sessions[-1].execute("deallocate all; select pg_advisory_unlock_all()")
        return Lent(sessions[-1].pgconn)

    yield lend
    for each in sessions:
        each.close()


@pytest.fixture
def connection(lend: Callable[[], Lent]) -> Iterator[psycopg.Connection[Any]]:
    """A connection in a transaction that is rolled back."""
    connection = lend()
    with connection.transaction(force_rollback=True):
        yield connection


@pytest.fixture
def own_connection(database: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection in a transaction, in a database of its own.

    What a test counts there does not depend on what the tests before it left in tables and indexes.
    """
    with psycopg.connect(database) as opened:
        yield opened


@pytest.fixture(scope="session")
def shared_database(spanmq_shared_database: str) -> str:
    """The DSN of the database of `connection`."""
    return spanmq_shared_database


@pytest.fixture
def dsns(spanmq_server: str, spanmq_template: str) -> Iterator[dict[str, str]]:
    """The DSNs of two databases with spanmq, which have as little of each other as two servers."""
    with (
        new_database(spanmq_server, template=spanmq_template) as one,
        new_database(spanmq_server, template=spanmq_template) as other,
    ):
        yield {"here": with_database(spanmq_server, one), "there": with_database(spanmq_server, other)}


@pytest.fixture
def empty_database(spanmq_server: str) -> Iterator[str]:
    """The DSN of a new, empty database."""
    with new_database(spanmq_server) as name:
        yield with_database(spanmq_server, name)


@pytest.fixture
def server_folder() -> Iterator[Path]:
    """A new folder that the server, which may be another user, can read; pytest's own are closed."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(scope="session")
def upstream_template(spanmq_server: str) -> Iterator[str]:
    """The name of a database with upstream PGMQ, from which others are copied."""
    pgmq = pytest.importorskip("pgmq")
    with new_database(spanmq_server) as name:
        with psycopg.connect(with_database(spanmq_server, name), autocommit=True) as connection:
            connection.execute(pgmq.get_embedded_install_sql())
        yield name


@pytest.fixture
def upstream_database(spanmq_server: str, upstream_template: str) -> Iterator[str]:
    """The DSN of a new database with upstream PGMQ."""
    with new_database(spanmq_server, template=upstream_template) as name:
        yield with_database(spanmq_server, name)


@pytest.fixture
def client(database: str) -> Iterator[Client]:
    """A client of a new database with an empty queue `orders`; it waits for locks without a time limit."""
    with Client(database, timeouts=None) as client:
        client.queues.create("orders")
        yield client


@pytest.fixture
def observer(database: str) -> Iterator[psycopg.Connection[Any]]:
    """Another session in the same database."""
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator["Recorded"]:
    """Every trace span that ends within the test, by a tracer as a program configures it."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from tests.recorded import Recorded

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    # A program can set its provider once only; each test has another one, and the rest of the tests none.
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield Recorded(exporter, trace.get_tracer("test"))
    provider.shutdown()


def refuse_network(event: str, arguments: tuple[Any, ...]) -> None:
    """Fail on a connection to another machine: the tests need none."""
    if event != "socket.connect" or not isinstance(arguments[1], tuple):
        return
    host = str(arguments[1][0])
    if host != "localhost" and not ipaddress.ip_address(host).is_loopback:
        raise RuntimeError(f"a test connects to {host}; tests may talk to this machine only")


if "SPANMQ_TEST_DSN" not in os.environ:
    sys.addaudithook(refuse_network)
