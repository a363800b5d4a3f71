"""Each role with a single verb against each function and relation of the catalogue: what it may execute and touch.

A function or relation without a place in the tables of tests/sql/rights.py is an error here.
"""

import re
from collections.abc import Iterator

import pytest
from tests.sql.queue import Connection, column, one, rows
from tests.sql.rights import (
    CALLED_FREELY,
    EXECUTABLE,
    FREE,
    ON_ALL,
    ON_QUEUES,
    PRIVILEGES,
    RECORDED,
    ROLE,
    ROLES,
    give,
    included,
    names,
    verbs_of_call,
)

# Entries that call what only roles with the verb may execute, under another name or with arguments of their own.
MAKERS = names("create create_non_partitioned create_unlogged create_partitioned move_sqs_messages")
# What returns a trigger is called by none; PUBLIC has it in PGMQ, too.
TRIGGERS = names("notify_queue_listeners")
SEGMENTS = """
    select ('spanmq_core.' || log_name, 'insert') from spanmq_core.segment where queue_id = any (%s) order by log_name
"""
HAS_SCHEMA = "select has_schema_privilege(%s, %s, %s)"


@pytest.fixture
def numbers(queues: Connection) -> dict[int, str]:
    """The names of the queues by their ids; each has the wrappers of all verbs, another role's."""
    for queue in ("jobs", "others"):
        queues.execute("select spanmq.grant_queue('spanmq_test_other', %s, 'manage')", [queue])
    return dict(rows(queues, "select queue_id, name from spanmq_core.queue"))


def may_execute(schema: str, name: str, verb: str, where: str | None, numbers: dict[int, str]) -> bool:
    """Return whether a role with the verb must be allowed to execute the function; fail if it has no place."""
    if schema == "spanmq_core":
        return name in {"last_notified_at", "refuse_replica_role", "unless_replica_role"}
    held = included(verb) if where is not None else set()
    if schema == "spanmq_call":
        if name in CALLED_FREELY:
            return True
        wrapper = re.fullmatch(r"(.+)_(\d+)", name)
        asked = verbs_of_call(wrapper[1] if wrapper else name)
        assert asked, f"spanmq_call.{name} has no place in tests/sql/rights.py"
        place = numbers[int(wrapper[2])] if wrapper else "all"
        return where == place and bool(asked & held)
    if name in FREE or name in MAKERS or any(name in names(text) for text in ON_QUEUES.values()):
        # Entries: they call with the rights of their caller.
        return True
    if name in names(RECORDED):
        # It calls the function of its name in spanmq_call, whose EXECUTE is the verb.
        return True
    asked = {verb for verb, text in ON_ALL.items() if name in names(text)}
    assert asked or name in TRIGGERS, f"{schema}.{name} has no place in tests/sql/rights.py"
    return name in TRIGGERS or (where == "all" and bool(asked & held))


def each_role(queues: Connection) -> Iterator[tuple[str, str | None]]:
    """Give the role each verb alone, in a transaction within that of the queues, which are dear to make."""
    for verb, where in ROLES:
        with queues.transaction(force_rollback=True):
            give(queues, verb, where)
            yield verb, where


def test_role_may_execute_what_its_verb_includes(queues: Connection, numbers: dict[int, str]) -> None:
    wrong = [
        f"{verb} on {where}: {schema}.{name}: {allowed}"
        for verb, where in each_role(queues)
        for schema, name, allowed, is_inner in rows(queues, EXECUTABLE, ROLE)
        if allowed is not (not is_inner and may_execute(schema, name, verb, where, numbers))
    ]
    assert wrong == []


def test_role_may_read_what_it_may_look_at_and_write_nothing(
    queues: Connection, numbers: dict[int, str]
) -> None:
    queues.execute("select spanmq.receiver_open('jobs'), spanmq.await_messages('{jobs}', gen_random_uuid())")
    for verb, where in each_role(queues):
        check_relations(queues, numbers, verb, where)


def check_relations(queues: Connection, numbers: dict[int, str], verb: str, where: str | None) -> None:
    seen = [queue for queue in numbers.values() if where in ("all", queue) and "look" in included(verb)]
    allowed = [(f"pgmq.{kind}_{queue}", "select") for kind in "aq" for queue in sorted(seen)]
    if verb == "bulk":
        writable = [each for each, queue in numbers.items() if where in ("all", queue)]
        allowed += column(queues, SEGMENTS, writable)
    assert rows(queues, PRIVILEGES, ROLE) == allowed, (verb, where)
    written = (
        "select attname from pg_attribute where attrelid = 'spanmq_call.caller'::regclass and attnum > 0"
    )
    may_write = "has_column_privilege(%s, attrelid, attnum, 'insert')"
    assert column(queues, f"{written} and {may_write}", ROLE) == ["proof"], (verb, where)
    for schema in ("pgmq", "spanmq", "spanmq_call", "spanmq_core"):
        held = [p for p in ("usage", "create") if one(queues, HAS_SCHEMA, ROLE, schema, p)]
        assert held == (["usage"] if schema != "spanmq_core" or verb == "bulk" else []), (verb, where)


def test_matrix_has_all_functions(queues: Connection, numbers: dict[int, str]) -> None:
    found = len(rows(queues, EXECUTABLE, ROLE))
    ours = "pronamespace::regnamespace::text ~ '^(pgmq|spanmq)'"
    assert found == one(queues, f"select count(*) from pg_proc where {ours}") > 600
    assert len(numbers) == 2
