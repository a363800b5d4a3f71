"""Every function against a role with each single verb: what is allowed, and what is refused."""

import re
from pathlib import Path

import pytest
from psycopg import sql
from tests.sql.queue import Connection, column, rows
from tests.sql.rights import (
    ALL_VERBS,
    FREE,
    ON_ALL,
    ON_QUEUES,
    ROLE,
    ROLES,
    calls,
    functions,
    give,
    is_refusal,
    needed,
    outcome,
    outcomes,
)


def test_every_function_needs_a_verb_or_none(connection: Connection) -> None:
    listed = {*" ".join([*ON_QUEUES.values(), *ON_ALL.values()]).split(), *FREE}
    named = {name for _, name, _, _ in functions(connection)}
    assert named ^ listed == set(), (
        "a function has its right in functions/entries.sql and tests/sql/rights.py"
    )


def test_reference_names_every_function_and_every_setting(queues: Connection) -> None:
    reference = Path(__file__).parents[2] / "docs/reference"
    headings = {f"{schema}.{name}" for schema, name, _, _ in functions(queues)}
    text = (reference / "sql.md").read_text("utf-8")
    assert headings == set(re.findall(r"^### (\S+)$", text, re.MULTILINE))
    settings = column(queues, "select jsonb_object_keys(spanmq.get_policy('jobs'))")
    policy = (reference / "policy.md").read_text("utf-8")
    assert [name for name in settings if f"`{name}`" not in policy] == [], "docs/reference/policy.md"


@pytest.mark.parametrize(("verb", "where"), ROLES)
def test_role_may_call_what_its_verb_includes(queues: Connection, verb: str, where: str | None) -> None:
    give(queues, verb, where)
    for queue in ("jobs", "others"):
        expected = needed(verb, where, queue)
        wrong = {
            name: ends
            for name, ends in outcomes(queues, queue).items()
            if ("refused" in ends) is (name in expected)
        }
        assert wrong == {}, queue


@pytest.mark.parametrize("where", ["jobs", "all"])
def test_every_call_asks_for_the_right_of_the_role_that_calls(queues: Connection, where: str) -> None:
    """In one transaction with calls of a role that may: after SET ROLE, and in a definer's trigger."""
    queues.execute("create role spanmq_test_able")
    for verb in ALL_VERBS if where == "all" else ["manage"]:
        give(queues, verb, where, "spanmq_test_able")
    queues.execute(
        f"""
        create temp table trap (statement text);
        create function pg_temp.spring() returns trigger language plpgsql security definer
            as 'begin execute new.statement; return new; end';
        alter function pg_temp.spring() owner to {ROLE};
        create trigger spring before insert on trap for each row execute function pg_temp.spring();
        grant insert on trap to spanmq_test_able;
        grant select on runs to spanmq_test_able;
        """.encode()
    )
    wrong = {}
    for name, statement in calls(queues, "jobs"):
        if name in FREE:
            continue
        with queues.transaction(force_rollback=True):
            able = outcome(queues, statement, "spanmq_test_able")
            quoted = sql.Literal(statement).as_string(queues)
            springs = f"insert into trap values ({quoted})"
            ends = (outcome(queues, statement), outcome(queues, springs, "spanmq_test_able"))
            if not all(is_refusal(name, each) for each in ends):
                wrong[statement] = (able, *ends)
    assert wrong == {}


# What the rights stand on.


def test_functions_whose_execute_is_a_right_are_definers_and_nobody_s(connection: Connection) -> None:
    """PostgreSQL inlines SQL functions that are not definers, and then checks EXECUTE at planning only."""
    wrong = column(
        connection,
        "select p.oid::regprocedure::text from unnest(%s::text[]) v (verb)"
        " cross join lateral regexp_split_to_table(spanmq_core.functions_of(v.verb), ', (?=spanmq|pgmq)') f (name)"
        " join pg_proc p on p.oid = f.name::regprocedure where p.proname !~ '^may_'"
        " and (not p.prosecdef or not 'search_path=pg_catalog, pg_temp' = any (p.proconfig)"
        "      or has_function_privilege('public', p.oid, 'execute'))",
        list(ALL_VERBS),
    )
    assert wrong == []


def test_definers_have_a_safe_search_path(connection: Connection) -> None:
    found = column(
        connection,
        "select oid::regprocedure::text from pg_proc where prosecdef and pronamespace::regnamespace::text"
        " in ('pgmq', 'spanmq', 'spanmq_call', 'spanmq_core')"
        " and not coalesce('search_path=pg_catalog, pg_temp' = any (proconfig), false)",
    )
    assert found == []


def test_schema_of_the_storage_is_nobody_s(connection: Connection) -> None:
    functions = column(
        connection,
        "select proname from pg_proc where pronamespace = 'spanmq_core'::regnamespace"
        " and has_function_privilege('public', oid, 'execute')",
    )
    # A view calls it with the rights of its reader.
    assert functions == ["last_notified_at", "refuse_replica_role", "unless_replica_role"]
    tables = column(
        connection,
        "select relname from pg_class where relnamespace in ('spanmq_core'::regnamespace, 'pgmq'::regnamespace)"
        " and relkind in ('r', 'p', 'v', 'm')"
        " and has_table_privilege('public', oid, 'select, insert, update, delete, truncate, references, trigger')",
    )
    assert tables == []
    schemas = "select s from unnest(array['pgmq', 'spanmq', 'spanmq_call', 'spanmq_core']) s where"
    assert column(connection, f"{schemas} has_schema_privilege('public', s, 'create')") == []
    assert column(connection, f"{schemas} not has_schema_privilege('public', s, 'usage')") == ["spanmq_core"]


# A call of a function of ours, with its arguments.
CALL = re.compile(r"\b(?:pgmq|spanmq|spanmq_call)\.\w+\(((?:[^()]|\([^()]*\))*)\)")
UNTYPED = re.compile(r"(?:^|,|=>)\s*null\s*(?:,|$)", re.IGNORECASE)


def test_no_null_is_an_argument_of_an_inner_call_without_a_type(connection: Connection) -> None:
    """An overload would fit it better that takes a text there."""
    bodies = rows(
        connection,
        "select oid::regprocedure::text, regexp_replace(prosrc, '--.*?$', '', 'gn') from pg_proc"
        " where pronamespace::regnamespace::text in ('pgmq', 'spanmq', 'spanmq_call', 'spanmq_core')",
    )
    calls = [(name, given) for name, text in bodies for given in CALL.findall(text)]
    assert len(calls) > 100
    assert [call for call in calls if UNTYPED.search(call[1])] == []
