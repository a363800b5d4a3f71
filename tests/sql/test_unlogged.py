"""Unlogged queues have the functions and tables of logged ones, and a crash empties all of them together.

So the tests of behaviour run on logged queues. On both kinds run the model, the random programs beside PGMQ,
and what settles messages: unlogged queues have no short ways, so they show what the long ways do.
"""

import re
from typing import Any

import pytest
from psycopg import Connection
from tests.sql.race.sessions import Race

FUNCTIONS = """
select p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')', pg_get_functiondef(p.oid)
from pg_proc p where p.pronamespace in ('spanmq'::regnamespace, 'pgmq'::regnamespace) and p.prokind = 'f'
"""
TABLES = """
select relname from pg_class
where relnamespace = 'spanmq'::regnamespace and relpersistence = 'u' and relkind = 'r' order by 1
"""
# All that PostgreSQL keeps of a table but names and whether it is logged, each in an order of its own.
PARTS = {
    "columns": """
        select a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attoptions, a.attstorage,
               a.attcompression, a.attgenerated, a.attidentity, pg_get_expr(d.adbin, d.adrelid)
        from pg_attribute a left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
        where a.attrelid = %s::regclass and a.attnum > 0 order by a.attnum
    """,
    "indexes": """
        select pg_get_indexdef(i.indexrelid), c.reloptions, i.indisclustered
        from pg_index i join pg_class c on c.oid = i.indexrelid where i.indrelid = %s::regclass
    """,
    "constraints": """
        select contype, pg_get_constraintdef(oid), convalidated
        from pg_constraint where conrelid = %s::regclass
    """,
    "triggers": "select pg_get_triggerdef(oid) from pg_trigger where tgrelid = %s::regclass",
    "options": "select reloptions, relacl::text, relrowsecurity from pg_class where oid = %s::regclass",
}
# A short way says that it is for logged queues only, one that builds its statement which of the two it names.
CHOOSES = re.compile(r"not (q|this)\.is_unlogged|when (this\.is_)?unlogged then '_unlogged'")
# A part of the short ways of receive.
OF_SHORT_WAYS = {"leave_behind"}


def functions(connection: Connection[Any]) -> dict[str, str]:
    return dict(connection.execute(FUNCTIONS.encode()).fetchall())


def name_of(signature: str) -> str:
    return signature.partition("(")[0]


def twins(connection: Connection[Any]) -> set[str]:
    """Return the names of what has a twin, without schemas."""
    tables = {name for (name,) in connection.execute(TABLES.encode()).fetchall()}
    return {
        name.removesuffix("_unlogged")
        for name in {*tables, *map(name_of, functions(connection))}
        if name.endswith("_unlogged") and name != "create_unlogged"
    }


def test_every_function_of_unlogged_queues_is_that_of_logged_ones(connection: Connection[Any]) -> None:
    every = functions(connection)
    names = twins(connection)
    logged = re.compile(rf"(?<![\w.])spanmq\.(?:{'|'.join(names)})(?!\w)")
    compared = 0
    for signature, text in every.items():
        name = name_of(signature)
        if not name.endswith("_unlogged") or name == "create_unlogged":
            continue
        twin = every[signature.replace("_unlogged", "")]
        assert text.replace("_unlogged", "") == twin, signature
        assert logged.findall(text) == [], f"{signature} names what belongs to logged queues"
        assert "_unlogged" not in twin, f"the twin of {signature} names what belongs to unlogged queues"
        compared += 1
    assert compared > 60


def test_every_table_of_unlogged_queues_is_that_of_logged_ones(connection: Connection[Any]) -> None:
    def parts(table: str) -> dict[str, list[str]]:
        return {
            part: sorted(
                re.sub(r"INDEX \w+ ON", "INDEX ON", str(row)).replace(f"spanmq.{table} ", "spanmq.it ")
                for row in connection.execute(query.encode(), [f"spanmq.{table}"]).fetchall()
            )
            for part, query in PARTS.items()
        }

    tables = [name for (name,) in connection.execute(TABLES.encode()).fetchall()]
    assert tables == ["deduplication_unlogged", "settled_unlogged", "span_unlogged"]
    for table in tables:
        assert parts(table) == parts(table.removesuffix("_unlogged"))


def test_what_serves_both_kinds_calls_both_twins(connection: Connection[Any]) -> None:
    names = twins(connection)
    called = re.compile(rf"(?<![\w.])spanmq\.({'|'.join(names)})(_unlogged)?(?!\w)")
    problems = {}
    for signature, text in functions(connection).items():
        name = name_of(signature)
        if name.removesuffix("_unlogged") in names | OF_SHORT_WAYS or CHOOSES.search(text):
            continue
        found = called.findall(text)
        logged, unlogged = (
            {name for name, suffix in found if bool(suffix) is side} for side in (False, True)
        )
        if logged != unlogged:
            problems[signature] = sorted(logged ^ unlogged)
    assert problems == {}


# More than the first segment holds.
SENT = 20_000


def persistence(race: Race) -> list[str]:
    """Return the kinds of the tables of the queue's log, its parent's too."""
    return race.main.column(
        "select distinct relpersistence::text from pg_class where relkind = 'r' and relname ~ %s",
        f"^log_{race.queue_id}(_|$)",
    )


@pytest.mark.parametrize(("kind", "expected"), [("create", "p"), ("create_unlogged", "u")])
def test_every_table_of_a_log_is_as_its_queue(database: str, kind: str, expected: str) -> None:
    with Race(database, kind=kind) as race:
        race.send(SENT)
        assert race.main.column("select action from pgmq.maintain()")[:2] == ["made segment"] * 2
        assert persistence(race) == [expected]


def test_copy_of_a_sparse_segment_is_unlogged(database: str) -> None:
    with Race(database, kind="create_unlogged") as race:
        ids = race.send(SENT)
        race.main.rows("select pgmq.delete('jobs', %s::bigint[])", ids[20:])
        done: list[str] = []
        for _ in range(30):
            done += race.main.column("select action from pgmq.maintain()")
            if "rewrote segment" in done:
                break
            race.wait_for_other_databases()
        assert "rewrote segment" in done
        assert persistence(race) == ["u"]
        assert race.main.column("select msg_id from pgmq.read('jobs', 30, 100)") == ids[:20]
