"""A standby is promoted under load: it has all that was answered, or, asynchronous, what it had heard of."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from lab.bench.history import kept, problems, read
from lab.bench.history.clients import MAX_ATTEMPTS, load
from tests.cli.program import do
from tests.process.servers import Servers, serving
from tests.process.test_backups import is_sound, prepare, work


@contextmanager
def pair() -> Iterator[tuple[Servers, str]]:
    """Run a primary with a queue, and a standby."""
    with serving() as servers:
        prepare(servers)
        yield servers, servers.add_standby()


def end_of_first_timeline(dsn: str) -> int:
    """Return the position up to which a promoted standby had the log of its primary."""
    with psycopg.connect(dsn) as connection:
        [(history,)] = connection.execute("select pg_read_file('pg_wal/00000002.history')").fetchall()
        position = history.split()[1]
        row = connection.execute("select (%s::pg_lsn - '0/0')::bigint", [position]).fetchone()
    assert row is not None
    return int(row[0])


def test_synchronous_standby_has_all_that_was_answered(tmp_path: Path) -> None:
    with pair() as (servers, standby):
        servers.be_synchronous()
        with load(servers.dsn, tmp_path / "before", "jobs", positions=True) as clients:
            work(clients)
            servers.stop(mode="immediate")
        servers.promote(standby)
        do(standby, "alter system reset synchronous_standby_names", "select pg_reload_conf()")
        is_sound(standby, tmp_path / "after", read(tmp_path / "before"))


def test_asynchronous_standby_lacks_exactly_what_it_had_not_heard_of(tmp_path: Path) -> None:
    with pair() as (servers, standby):
        with load(servers.dsn, tmp_path / "before", "jobs", positions=True) as clients:
            work(clients)
            do(standby, "alter system set primary_conninfo = 'host=/nowhere'", "select pg_reload_conf()")
            servers.until(standby, "select not exists (select from pg_stat_wal_receiver)")
            work(clients)
            servers.stop(mode="immediate")
        servers.promote(standby)
        before = read(tmp_path / "before")
        left = kept(before, end_of_first_timeline(standby))
        is_sound(standby, tmp_path / "after", left)
        answered = {True: Counter[str](), False: Counter[str]()}
        for call in before:
            answered[call in left][call.verb] += call.is_answered
        for verb in ("send", "receive", "settle"):
            assert answered[True][verb], f"no {verb} was kept"
            assert answered[False][verb], f"no {verb} was lost"
        # Of what was under way when the standby heard the last word, one call for each client is unknown at most.
        assert sum(not call.is_answered for call in left) <= len(clients)
        # A check that does not know of the promotion sees the loss.
        assert problems([*before, *read(tmp_path / "after")], ordered=True, max_attempts=MAX_ATTEMPTS)
