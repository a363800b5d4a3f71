"""Every function against a role with each single verb: what is allowed, and what is refused."""

from typing import Any

import psycopg
import pytest
from psycopg import Connection, sql
from tests.sql.queue import column

ROLE = "spanmq_test_caller"
# Each function of pgmq and spanmq by the verb that it needs. On a queue, or on all.
ON_QUEUES = {
    "send": """
        send send_batch send_topic send_messages copy_begin copy_publish bulk_reserve bulk_seal bulk_publish
        bulk_close bulk_published schedule unschedule pause_schedule resume_schedule plan_schedule
    """,
    "look": """
        metrics create_fifo_index peek peek_archive storage archive_position archive_ranges archive_piece
        list_category_policies classify list_category_rules dead_letters count_dead_letters
        dead_letters_between dead_letter_extent dead_letters_of failures failures_between failure_extent
        statistics list_leases list_groups list_segments list_bindings list_throttles get_policy receiver_log
        list_receivers status list_subscriptions shard_groups begin_pipeline_run note_pipeline_run
        end_pipeline_run list_pipeline_runs
    """,
    "receive": """
        read read_with_poll pop read_grouped read_grouped_rr read_grouped_head read_grouped_with_poll
        read_grouped_rr_with_poll read_grouped_head_with_poll delete archive set_vt receive ack cancel nack
        reject release extend hold receiver_open receiver_claim receiver_ranges adopt_receiver
        release_receiver reject_from_receiver await_messages look_ahead report_breaker note_export
        forget_export redrive_chosen redrive redrive_message discard_chosen purge_dead_letters
    """,
    "manage": """
        purge_queue enable_notify_insert disable_notify_insert update_notify_insert unbind_topic
        convert_archive_partitioned drop_queue set_policy set_category_policy set_category_rule
        drop_category_rule pause resume grant_queue revoke_queue list_grants
    """,
}
# On all queues only.
ON_ALL = {
    "send": "enter_shards",
    "look": "sum_statistics",
    "manage": "bind_topic create_subscription",
    "create": """
        create create_non_partitioned create_unlogged create_partitioned set_shards forget_shards
    """,
    "maintain": "maintain upcoming_schedules doctor",
    "serve": """
        check_token find_access_key open_session check_session close_session list_sqs_queues set_sqs_queue
        start_sqs_move list_sqs_moves find_sqs_move cancel_sqs_move take_sqs_move note_sqs_move
        move_sqs_messages list_sqs_moved
    """,
    "admin": """
        create_token list_tokens revoke_token rotate_token create_access_key list_access_keys
        revoke_access_key
    """,
    "no verb": "grant_all revoke_all grant_create",
}
# Everybody may call these: they look at their arguments only, or return the queues on which the caller has a right.
FREE = frozenset(
    "acquire_queue_lock create_fifo_indexes_all detach_archive format_table_name validate_queue_name"  # noqa: SIM905
    " validate_routing_key validate_topic_pattern version get_shards list_queues metrics_all"
    " list_notify_insert_throttles list_topic_bindings test_routing send_batch_topic health glance"
    " latest_statistics list_schedules".split()
)
INCLUDED = {
    "look": {"look"},
    "receive": {"look", "receive"},
    "manage": {"send", "look", "receive", "manage"},
    "admin": {"serve", "admin"},
}
QUEUE_VERBS = ("send", "look", "receive", "manage")
ALL_VERBS = (*QUEUE_VERBS, "create", "maintain", "serve", "admin")
ROLES = [
    ("nothing", None),
    *((verb, "jobs") for verb in QUEUE_VERBS),
    *((verb, "all") for verb in ALL_VERBS),
]
REFUSALS = {"42501", "42P01"}

# Arguments by their names, else by their types. {queue} is the queue that a call is about.
BY_NAME = {
    "queue": "'{queue}'",
    "queue_name": "'{queue}'",
    "table_name": "'{queue}'",
    "source": "'{queue}'",
    "destination": "'{queue}'",
    "queues": "array['{queue}']",
    "role": "'spanmq_test_other'",
    "verb": "'send'",
    "pattern": "'{queue}'",
    "routing_key": "'{queue}'",
    "run_id": "(select run_id from runs where queue = '{queue}')",
    "max_poll_seconds": "0",
    "handle": "null",
    "routing": "'hash'",
    "lake": "'s3'",
    "partition_interval": "'10'",
    "retention_interval": "'10'",
    "seconds": "0",
    "n": "0",
    "category": "'TRANSIENT'",
}
BY_TYPE = {
    "bigint": "1",
    "integer": "1",
    "double precision": "1",
    "boolean": "false",
    "text": "'x'",
    "uuid": "null",
    "jsonb": "'{{}}'",
    "jsonb[]": "array['{{}}']",
    "bigint[]": "array[1]",
    "text[]": "array['send']",
    "int8multirange": "'{{}}'",
    "timestamp with time zone": "now()",
    "timestamp with time zone[]": "array[now()]",
}
# What returns nothing to refuse: it is refused where it divides by zero.
COUNTS = {"drop_queue": "::int", "send_topic": "", "unbind_topic": "::int", "unschedule": "::int"}
# They make a queue of that name.
MAKERS = {"create", "create_non_partitioned", "create_unlogged", "create_partitioned", "create_subscription"}
# They are about the schedule of that name.
SCHEDULES = {"unschedule", "pause_schedule", "resume_schedule", "plan_schedule"}


def names(text: str) -> set[str]:
    return set(text.split())


# They refuse nothing: they do nothing to a queue on which the caller has no right.
QUIET = [("drop_queue", ["text", "boolean"]), ("look_ahead", ["text[]"])]


def functions(connection: Connection[Any]) -> list[tuple[str, str, list[str], list[str]]]:
    """Return schema, name, names and types of the arguments of each public function."""
    return connection.execute(
        "select pronamespace::regnamespace::text, proname,"
        " coalesce(proargnames[1:pronargs], '{}'), array(select format_type(t, null)"
        "   from unnest(proargtypes) with ordinality u (t, place) order by place)"
        " from pg_proc where pronamespace in ('pgmq'::regnamespace, 'spanmq'::regnamespace)"
        " and prokind = 'f' and prorettype <> 'trigger'::regtype order by oid"
    ).fetchall()


def calls(connection: Connection[Any], queue: str) -> list[tuple[str, str]]:
    """Return the name and a call of each public function, about the queue, with all its arguments."""
    made = []
    for schema, name, arguments, types in functions(connection):
        if (name, types) in QUIET:
            continue
        values = []
        for argument, kind in zip(arguments, types, strict=True):
            value = BY_NAME.get(argument) or BY_TYPE[kind]
            if name in SCHEDULES and argument == "name":
                value = "'of {queue}'"
            elif name in MAKERS and argument in ("queue_name", "name"):
                value = "'made'"
            values.append(f"{value}::{kind}".format(queue=queue))
        call = f"{schema}.{name}({', '.join(values)})"
        if name in COUNTS:
            made.append((name, f"select 1 / {call}{COUNTS[name]}"))
        else:
            made.append((name, f"select * from {call}"))
    return made


def fill(connection: Connection[Any]) -> None:
    """Make queues `jobs` and `others`, each with a message, a topic, a schedule and a run of the pipeline."""
    connection.execute("create temp table runs (queue text, run_id bigint)")
    for queue in ("jobs", "others"):
        connection.execute("select pgmq.create(%s), pgmq.send(%s, '1')", [queue, queue])
        connection.execute("select pgmq.bind_topic(%s, %s)", [queue, queue])
        connection.execute("select spanmq.schedule(%s, %s, '* * * * *', '1')", [f"of {queue}", queue])
        connection.execute(
            "insert into runs select %s, spanmq.begin_pipeline_run('export', %s)", [queue, queue]
        )


@pytest.fixture
def queues(connection: Connection[Any]) -> Connection[Any]:
    """Queues `jobs` and `others` with all there can be in them, and a role without any right."""
    fill(connection)
    connection.execute(
        f"create role {ROLE}; create role spanmq_test_other; grant select on runs to {ROLE}".encode()
    )
    return connection


def outcome(connection: Connection[Any], statement: str, role: str = ROLE) -> str:
    """Return how a call of the role ends: an SQLSTATE, or ok. What it did is rolled back."""
    try:
        with connection.transaction(force_rollback=True):
            connection.execute(f"set local role {role}".encode())
            connection.execute(statement.encode())
    except psycopg.Error as error:
        return error.sqlstate or "unknown"
    return "ok"


def is_refusal(name: str, state: str) -> bool:
    return state in REFUSALS or (name in COUNTS and state == "22012")


def outcomes(connection: Connection[Any], queue: str) -> dict[str, set[str]]:
    """Return for each function how its calls about the queue end: refused, or allowed."""
    found: dict[str, set[str]] = {}
    for name, statement in calls(connection, queue):
        state = outcome(connection, statement)
        found.setdefault(name, set()).add("refused" if is_refusal(name, state) else f"allowed ({state})")
    return found


def needed(verb: str, where: str | None, queue: str) -> set[str]:
    included = INCLUDED.get(verb, {verb})
    expected = set(FREE)
    if where in ("all", queue):
        expected |= set().union(*(names(ON_QUEUES.get(each, "")) for each in included))
    if where == "all":
        expected |= set().union(*(names(ON_ALL.get(each, "")) for each in included))
    return expected


def give(connection: Connection[Any], verb: str, where: str | None, role: str = ROLE) -> None:
    if where == "all":
        connection.execute("select spanmq.grant_all(%s, %s)", [role, verb])
    elif where is not None:
        connection.execute("select spanmq.grant_queue(%s, %s, %s)", [role, where, verb])


def test_every_function_needs_a_verb_or_none(connection: Connection[Any]) -> None:
    listed = [*ON_QUEUES.values(), *ON_ALL.values(), " ".join(FREE)]
    expected = sorted(each for text in listed for each in text.split())
    assert sorted({name for _, name, _, _ in functions(connection)}) == expected


@pytest.mark.parametrize(("verb", "where"), ROLES)
def test_role_may_call_what_its_verb_includes(queues: Connection[Any], verb: str, where: str | None) -> None:
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
def test_every_call_asks_for_the_right_of_the_role_that_calls(queues: Connection[Any], where: str) -> None:
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


def test_functions_whose_execute_is_a_right_are_definers_and_nobody_s(connection: Connection[Any]) -> None:
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


def test_definers_have_a_safe_search_path(connection: Connection[Any]) -> None:
    found = column(
        connection,
        "select oid::regprocedure::text from pg_proc where prosecdef and pronamespace::regnamespace::text"
        " in ('pgmq', 'spanmq', 'spanmq_call', 'spanmq_core')"
        " and not coalesce('search_path=pg_catalog, pg_temp' = any (proconfig), false)",
    )
    assert found == []


def test_schema_of_the_storage_is_nobody_s(connection: Connection[Any]) -> None:
    functions = column(
        connection,
        "select proname from pg_proc where pronamespace = 'spanmq_core'::regnamespace"
        " and has_function_privilege('public', oid, 'execute')",
    )
    # A view calls it with the rights of its reader.
    assert functions == ["last_notified_at"]
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
