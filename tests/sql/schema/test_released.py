"""The databases of released versions: each is upgraded to the checkout, and everything in it goes on.

`tools/dump_release.py` has written them; `make release` adds that of its version.
"""

import lzma
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.sql.model.invariants import broken_invariants
from tests.sql.queue import Connection, column, one, sqlstate_of
from tests.sql.schema.conftest import SQL, change, session_of, snapshot
from tools import dump_release

import spanmq
from spanmq import schema
from spanmq.client import Client
from spanmq.codec.encryption import Encryption, Unopened
from spanmq.model import Leased
from spanmq.schema.release import Release, load_release
from spanmq.testing import new_database, with_database

FILES = {
    file.name.removesuffix(".sql.xz"): file for file in Path(__file__).with_name("released").glob("*.sql.xz")
}
KEYS = {"released": b"r" * 32}
# What a queue has of its own, and other queues do not.
OF_A_QUEUE = re.compile(r"_\d+\(|\bget_\w+_\d+|_\d+$")
# A client reads these the same before and after the upgrade, and before it as a client that is one release newer.
READS: dict[str, Callable[[Client], Any]] = {
    "queues": lambda client: client.queues.list(),
    "policies": lambda client: [client.queues.policy(each.name) for each in client.queues.list()],
    "schemas": lambda client: client.queues.schema("Orders"),
    "messages": lambda client: {each.name: client.peek(each.name, 1000) for each in client.queues.list()},
    "archive": lambda client: client.inspect.archive("Orders"),
    "failing": lambda client: client.inspect.failing_messages("Orders"),
    "groups": lambda client: client.inspect.groups("groups"),
    "dead letters": lambda client: client.dead_letters.list(),
    "rules": lambda client: client.dead_letters.categories.list_rules("Orders"),
    "category policies": lambda client: client.dead_letters.categories.list_policies("Orders"),
    "schedules": lambda client: client.schedules.list(),
    "batches": lambda client: client.batches.list(),
    "results": lambda client: client.results.get("Orders", range(100)),
    "topics": lambda client: client.topics.list(),
    "subscriptions": lambda client: client.subscriptions.list(),
    "receivers": lambda client: client.admin.receivers.list(),
    "runs": lambda client: client.admin.pipeline_runs.list(),
    "tokens": lambda client: client.admin.tokens.list(),
    "keys": lambda client: client.admin.keys.list(),
    "grants": lambda client: client.admin.grants.list(),
    "changes": lambda client: client.inspect.changes(),
}


def dump_of(version: str) -> str:
    """Return the dump of a release as SQL."""
    return lzma.decompress(FILES[version].read_bytes()).decode()


@pytest.fixture(params=sorted(FILES))
def released(request: pytest.FixtureRequest, empty_database: str, role: str) -> Iterator[str]:
    """Restore the database of a release; its role that has rights is `role`. Return the version."""
    with psycopg.connect(empty_database, autocommit=True) as restoring:
        restoring.execute(dump_of(request.param).replace("released_role", role).encode())
        yield request.param


def later(folder: Path, version: str) -> Release:
    """Return the checkout's release; for a database of that very release, one with a change of both kinds."""
    if version != spanmq.__version__:
        return load_release()
    text = dump_of(version)
    changed = [each.name for each in load_release().migrations if each.checksum not in text]
    assert not changed, "before its release: run tools/dump_release.py; after it, a migration never changes"
    shutil.copytree(SQL, folder / "later")
    (folder / "later/tables/9999_later.sql").write_text(
        "-- since 9.0.0\nalter table spanmq_core.queue add column later int not null default 7;\n"
    )
    header = "create or replace function spanmq_call.pause(queue text) returns void"
    with_reason = header.replace("queue text", "queue text, reason text default null")
    return change(folder / "later", "settle/state.sql", (header, with_reason))


def test_everything_of_a_release_goes_on_after_the_upgrade(
    released: str, session: Connection, empty_database: str, spanmq_server: str, role: str, tmp_path: Path
) -> None:
    release = later(tmp_path, released)
    with Client(empty_database, encryption=Encryption(KEYS)) as client:
        before = {name: read(client) for name, read in READS.items()}
        assert all(before.values())
        done = schema.upgrade(session, release=release)
        assert (done.version, done.functions_applied) == (release.version, True)
        assert schema.verify(session, release=release) == []
        assert broken_invariants(session) == []
        assert {name: read(client) for name, read in READS.items()} == before
        with (
            new_database(spanmq_server) as name,
            psycopg.connect(with_database(spanmq_server, name), autocommit=True) as fresh,
        ):
            schema.install(fresh, release=release)
            assert without_queues(snapshot(session)) == without_queues(snapshot(fresh))
        goes_on(client, session, empty_database, role)
        assert broken_invariants(session) == []


def test_dump_of_the_next_release_has_something_in_each_table(
    empty_database: str, session: Connection, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dump_release, "ROLE", role)
    schema.install(session)
    with Client(empty_database) as client:
        dump_release.fill(client, session, empty_database)
    # The messages that a crash of the server loses.
    assert dump_release.empty_tables(session) <= {"missing"}


def test_verbs_of_a_release_reach_the_functions_that_record(
    released: str, session: Connection, role: str, tmp_path: Path
) -> None:
    for verb in ("admin", "create", "manage", "serve"):
        session.execute("select spanmq.grant_all(%s, %s)", [role, verb])
    session.execute("select spanmq.grant_queue(%s, 'Orders', 'manage')", [role])
    schema.upgrade(session, release=later(tmp_path, released))
    before = one(session, "select max(change_id) from spanmq.list_changes()")
    session.execute(f"set role {role}".encode())
    session.execute(
        "select spanmq.create_token('new', repeat('e', 64), '{*}', '{look}'), spanmq.stop_worker('w')"
    )
    session.execute(
        "select spanmq.set_shards('wide', 1, 'group', '{\"a\": \"main\"}'), spanmq.pause('Orders')"
    )
    session.execute("select spanmq.set_sqs_queue('Orders'), pgmq.bind_topic('new.*', 'Orders')")
    session.execute("reset role")
    made = column(session, "select action from spanmq.list_changes() where change_id > %s order by 1", before)
    assert made == ["bind_topic", "create_token", "pause", "set_shards", "set_sqs_queue", "stop_worker"]
    without_record = column(
        session,
        "select p.oid::regprocedure::text"
        " from spanmq_core.recorded() r join pg_proc w on w.oid = r.written cross join pg_proc p"
        " where p.pronamespace = 'spanmq_call'::regnamespace and has_function_privilege(%s, p.oid, 'execute')"
        " and (p.oid = w.oid or p.proname ~ ('^' || w.proname || '_[0-9]+$')"
        " and p.proargtypes[p.pronargs - 1] is distinct from 'uuid'::regtype)",
        role,
    )
    assert without_record == []


def without_queues(installed: set[tuple[str, str, str]]) -> set[tuple[str, str, str]]:
    """Leave out what belongs to single queues."""
    return {each for each in installed if not OF_A_QUEUE.search(each[1])}


def goes_on(client: Client, session: Connection, dsn: str, role: str) -> None:
    """Use everything that was not finished, and settle every message."""
    with session_of(dsn, role) as other:
        assert len(column(other, "select msg_id from spanmq.receive('jobs', 1)")) == 1
        assert column(other, "select pgmq.send('groups', '{}')")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            other.execute("select * from spanmq.receive('Orders')")
    # A lease from before the upgrade settles its messages.
    held = session.execute(
        "select q.name, h.lease_id, h.msg_id from spanmq_core.unsettled h join spanmq_core.queue q using (queue_id)"
        " where h.lease_id > 0 and q.name = 'groups'"
    ).fetchall()
    assert [client.ack(Leased(*each))[0].outcome for each in held] == ["acked"]
    # A bulk write is published.
    open_write = "select w.write_id, w.epoch, array_agg(b.block_id) from spanmq_core.bulk_write w"
    [(write_id, epoch, blocks)] = session.execute(
        f"{open_write} join spanmq_core.bulk_block b using (write_id) group by 1, 2".encode()
    ).fetchall()
    publish = "select spanmq.bulk_publish('stream', 'writer', %s, %s, %s)"
    assert one(session, publish, epoch, write_id, blocks) == 10
    # A stream that is not coming back.
    assert client.admin.receivers.release("stream", "spark") > 0
    assert one(session, "select pgmq.send_topic('order.new', '{}')") == 1
    assert client.schedules.run("yearly")
    client.queues.resume("paused")
    client.queues.set_policy("limited", rate_limit=None, max_in_flight=None)
    # It was open for a day after the dump was made.
    session.execute("update spanmq_core.breaker set open_until = clock_timestamp() + interval '1 hour'")
    assert client.queues.close_breaker("limited") == 1
    bodies: dict[str, list[Any]] = {}
    names = [each.name for each in client.queues.list()]
    # 0.1.0 had no limits by key.
    if "keyed" in names:
        client.queues.set_policy("keyed", rate_limit_per_group=None)
    # A message may fail once more, the message of a batch comes when the others are settled.
    for name in names * 5:
        if any(each.queue == name for each in client.dead_letters.count()):
            client.dead_letters.redrive(name, delay=0)
        client.set_vt(name, [message.message_id for message in client.peek(name, 1000)], 0)
        while messages := client.receive(name, 100):
            assert {settled.outcome for settled in client.ack(messages)} == {"acked"}
            bodies.setdefault(name, []).extend(message.body for message in messages)
    assert not any(each.length for each in client.queues.metrics_all())
    assert client.dead_letters.count() == []
    assert bodies["sealed"] == ["secret", {"secret": 2}]
    assert {"task": "then"} in bodies["jobs"]
    assert not any(isinstance(body, Unopened) for each in bodies.values() for body in each)
    while client.admin.maintain():
        pass


# What an owner may have granted under an older release, by hand or by default: {0} is the role.
GRANTS = (
    *(
        f"grant usage on schema {place} to {{0}} with grant option;"
        f" grant all on all tables in schema {place} to {{0}} with grant option;"
        f" grant all on all sequences in schema {place} to {{0}} with grant option"
        for place in ("pgmq", "spanmq", "spanmq_call", "spanmq_core")
    ),
    "grant update (name), references (queue_id) on spanmq_core.queue to {0}, public",
    "grant references (msg_id) on pgmq.a_orders to {0} with grant option",
    "grant all on all routines in schema pgmq to {0} with grant option",
    *(
        f"alter default privileges grant all on {kind} to {{0}}"
        for kind in ("tables", "sequences", "functions")
    ),
    (
        "set role {0}; create schema theirs_{0}; grant all on schema theirs_{0} to public;"
        " create function theirs_{0}.fires() returns trigger language plpgsql as"
        " 'begin return new; end'; create trigger a_trigger before insert on pgmq.a_orders for each row"
        " execute function theirs_{0}.fires(); reset role"
    ),
)


def test_upgrade_leaves_of_what_was_granted_what_is_granted_today(
    released: str, session: Connection, empty_database: str, role: str
) -> None:
    database = one(session, "select quote_ident(current_database())")
    session.execute(f"grant create on database {database} to {role}".encode())
    session.execute("select spanmq.follow_table_grants(false)")
    verbs = session.execute("select * from spanmq.list_grants()").fetchall()
    for each in GRANTS:
        session.execute(each.format(role).encode())
    schema.upgrade(session)
    # A trigger stays, and is named; whatever was granted beside the verbs is revoked.
    assert [each.name for each in schema.verify(session)] == ["a_trigger on pgmq.a_orders"]
    assert session.execute("select * from spanmq.list_grants()").fetchall() == verbs
    with session_of(empty_database, role) as theirs:
        for call in (
            "select pgmq.bind_topic('#', 'jobs')",
            "insert into pgmq.topic_bindings (queue_name, pattern) values ('jobs', '#')",
            "select count(*) from spanmq_core.queue",
            "update spanmq_core.queue set name = name",
            "create function pgmq.send() returns int language sql as 'select 1'",
            "select pgmq.archive('Orders', 1)",
            "delete from pgmq.q_orders",
        ):
            assert sqlstate_of(theirs, call) == "42501", call
    session.execute("select pgmq.create('later')")
    assert [each.name for each in schema.verify(session)] == ["a_trigger on pgmq.a_orders"]
