"""What a server holds after a recovery, a restored dump and pg_upgrade, and what a standby answers."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from lab.bench.history import Call, Recorder, kept, problems, read, seen
from lab.bench.history.clients import MAX_ATTEMPTS, Client, create, load, told
from psycopg.conninfo import make_conninfo
from service.tests.running import service
from tests.patience import wait_until
from tests.process.servers import Servers, is_installed, serving
from tests.sql.model.invariants import broken_invariants

from spanmq import Client as SpanmqClient
from spanmq import schema

ENOUGH = 40


def prepare(servers: Servers) -> None:
    with psycopg.connect(servers.dsn) as connection:
        schema.install(connection)
        create(connection, "jobs")


def work(clients: list[Client]) -> None:
    """Return when each client has had enough answers more."""
    targets = [client.answers + ENOUGH for client in clients]
    wait_until(lambda: all(one.answers >= target for one, target in zip(clients, targets, strict=True)))


def is_sound(dsn: str, folder: Path, before: list[Call]) -> None:
    """Have clients go on, and check the history of all."""
    with load(dsn, folder, "jobs") as clients:
        work(clients)
    with psycopg.connect(dsn, autocommit=True) as connection:
        calls = [*before, *told(folder, connection, "jobs")]
        assert problems(calls, ordered=True, max_attempts=MAX_ATTEMPTS) == []
        assert broken_invariants(connection) == []


def test_recovery_to_a_point_in_time_has_what_was_done_until_then(tmp_path: Path) -> None:
    with serving() as servers:
        prepare(servers)
        with load(servers.dsn, tmp_path / "before", "jobs", positions=True) as clients:
            work(clients)
            go_back = servers.back_up()
            work(clients)
        go_back()
        calls = read(tmp_path / "before")
        left = kept(calls, servers.restore_point)
        assert 0 < len(left) < len(calls)
        is_sound(servers.dsn, tmp_path / "after", left)


def test_restored_dump_has_what_was_done_until_its_snapshot(tmp_path: Path) -> None:
    with serving() as servers:
        prepare(servers)
        with load(servers.dsn, tmp_path / "before", "jobs") as clients:
            work(clients)
            restored, since, until = servers.dump_into("copy")
            work(clients)
        calls = read(tmp_path / "before")
        left = seen(calls, since, until)
        assert 0 < len(left) < len(calls)
        is_sound(restored, tmp_path / "after", left)


@pytest.mark.parametrize("version", [15, 16])
def test_queues_go_on_after_pg_upgrade(tmp_path: Path, version: int) -> None:
    if not is_installed(version):
        pytest.skip(f"there is no PostgreSQL {version} here")
    with serving(version) as servers:
        prepare(servers)
        with load(servers.dsn, tmp_path / "before", "jobs") as clients:
            work(clients)
        servers.upgrade(18)
        is_sound(servers.dsn, tmp_path / "after", read(tmp_path / "before"))


def test_logical_replication_decodes_what_a_queue_does_and_disturbs_nothing(tmp_path: Path) -> None:
    slot = "select pg_create_logical_replication_slot('all', 'pgoutput')"
    changes = (
        "select count(*) from pg_logical_slot_get_binary_changes('all', null, null,"
        " 'proto_version', '1', 'publication_names', 'everything')"
    )
    with serving() as servers:
        prepare(servers)
        with psycopg.connect(servers.dsn, autocommit=True) as connection:
            connection.execute("create publication everything for all tables")
            connection.execute(slot.encode())
            is_sound(servers.dsn, tmp_path, [])
            row = connection.execute(changes.encode()).fetchone()
            assert row is not None
            assert row[0] > ENOUGH


def test_counts_of_a_standby_that_applies_before_an_answer_lie_within_what_can_be(tmp_path: Path) -> None:
    counts = "select queue_length from pgmq.metrics('jobs')"
    with serving() as servers:
        prepare(servers)
        standby = servers.add_standby()
        servers.be_synchronous()
        dsn = make_conninfo(servers.dsn, options="-c synchronous_commit=remote_apply")
        with (
            load(dsn, tmp_path, "jobs") as clients,
            psycopg.connect(standby, autocommit=True) as reader,
            Recorder(tmp_path, "reader") as recorder,
        ):
            target = sum(client.answers for client in clients) + ENOUGH * len(clients)
            while sum(client.answers for client in clients) < target:
                with recorder.call("count") as call:
                    [(call.got,)] = reader.execute(counts.encode()).fetchall()
        with psycopg.connect(servers.dsn, autocommit=True) as connection:
            calls = told(tmp_path, connection, "jobs")
        assert problems(calls, ordered=True, max_attempts=MAX_ATTEMPTS) == []
        assert len({call.got for call in calls if call.verb == "count"}) > 1


READS = {
    "metrics": "select queue_length from pgmq.metrics('jobs')",
    "metrics of all": "select queue_length from pgmq.metrics_all()",
    "peek": "select count(*) from spanmq.peek('jobs')",
    "queue": "select count(*) from pgmq.q_jobs",
    "archive": "select count(*) + 2 from pgmq.a_jobs",
    "dead letters": "select count(*) + 1 from spanmq.dead_letters('jobs')",
    "count of dead letters": "select n + 1 from spanmq.count_dead_letters('jobs')",
}


@pytest.fixture(scope="module")
def standby(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A standby of a server with two messages in a queue and a dead letter."""
    with serving() as servers:
        prepare(servers)
        with SpanmqClient(servers.dsn) as client:
            client.send_batch("jobs", [1, 2, 3])
            client.reject(client.receive("jobs"), error="no")
        yield servers.add_standby()


@pytest.mark.parametrize("what", READS)
def test_hot_standby_answers(standby: str, what: str) -> None:
    with psycopg.connect(standby, autocommit=True) as connection:
        assert connection.execute(READS[what].encode()).fetchall() == [(2,)]


def test_dashboard_reads_a_hot_standby(standby: str, tmp_path: Path) -> None:
    dsn = make_conninfo(standby, target_session_attrs="any", application_name="reader")
    sessions = "select pid from pg_stat_activity where application_name = 'reader'"
    with (
        service(dsn, tmp_path) as running,
        running.client() as http,
        psycopg.connect(standby, autocommit=True) as observer,
    ):
        for page in (
            "/",
            "/queue",
            "/queue/messages",
            "/queue/dead-letters",
            "/queue/failing",
            "/dead-letters",
        ):
            assert http.get(page, params={"queue": "jobs"}).status_code == 200, page
        assert (before := set(observer.execute(sessions).fetchall()))
        # What needs a writable server is refused, and the connections stay.
        assert http.post("/v1/maintain").status_code == 503
        assert http.get("/health/ready").status_code == 503
        assert http.get("/queue", params={"queue": "jobs"}).status_code == 200
        assert before <= set(observer.execute(sessions).fetchall())
