"""Which verb each function needs; calls of every function about one queue, and how they end for a role."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from tests.sql.queue import Connection, one

ROLE = "spanmq_test_caller"
# Each function of pgmq and spanmq by the verb that it needs. On a queue, or on all.
ON_QUEUES = {  # replay() is of `look`, and sends too: here into the same queue.
    "send": """
        send send_batch send_topic send_messages copy_begin copy_publish bulk_published published_epochs
        schedule unschedule pause_schedule run_schedule resume_schedule plan_schedule create_batch add_to_batch
        note_task_shapes wait_for_signal signal
    """,
    "bulk": "bulk_reserve bulk_seal bulk_publish bulk_close",
    "look": """
        metrics create_fifo_index peek peek_archive storage archive_position archive_ranges archive_piece
        list_category_policies classify list_category_rules dead_letters count_dead_letters
        dead_letters_between dead_letter_extent dead_letters_of read_ranges failures failures_between failure_extent
        failing failing_messages list_changes
        get_schema statistics list_leases list_groups list_segments list_bindings list_throttles get_policy receiver_log
        list_receivers state explain list_subscriptions shard_groups begin_pipeline_run note_pipeline_run
        end_pipeline_run list_pipeline_runs await_settled unsettled get_results list_results replay_extent
        note_position known_positions noted_export exported_ids task_statistics list_task_shapes list_signals
    """,
    "receive": """
        read read_with_poll pop read_grouped read_grouped_rr read_grouped_head read_grouped_with_poll
        read_grouped_rr_with_poll read_grouped_head_with_poll delete archive set_vt receive begin_alone ack cancel
        cancelled nack reject release extend receiver_open receiver_claim receiver_ranges
        adopt_receiver release_receiver reject_from_receiver await_messages look_ahead note_export hold_export
        refuse_export forget_export redrive redrive_message purge_dead_letters store_result
        ack_with_results retry_failing reject_failing close_bucket
        report_worker
    """,
    "manage": """
        purge_queue enable_notify_insert disable_notify_insert update_notify_insert unbind_topic
        convert_archive_partitioned drop_queue set_policy set_schema set_category_policy set_category_rule
        drop_category_rule pause resume close_breaker grant_queue revoke_queue list_grants replay ask_stacks get_stacks
    """,
}
# On all queues only.
ON_ALL = {
    "send": "enter_shards",
    "look": "sum_statistics",
    "manage": "bind_topic create_subscription stop_worker",
    "create": """
        create create_non_partitioned create_unlogged create_partitioned set_shards forget_shards
    """,
    "maintain": "maintain plan_schedule doctor begin_notices end_notices",
    "serve": """
        check_token find_access_key open_session check_session close_session list_sqs_queues set_sqs_queue
        start_sqs_move list_sqs_moves find_sqs_move cancel_sqs_move take_sqs_move has_sqs_moves note_sqs_move
        move_sqs_messages list_sqs_moved
    """,
    "admin": """
        create_token list_tokens revoke_token rotate_token create_access_key list_access_keys
        revoke_access_key
    """,
    "no verb": "grant_all revoke_all grant_create follow_table_grants",
}
# Each call of one of these leaves one record: what is done by hand to queues, messages, schedules and rights.
RECORDED = """
    create create_non_partitioned create_unlogged create_partitioned drop_queue set_shards forget_shards
    schedule unschedule pause_schedule run_schedule resume_schedule replay
    cancel adopt_receiver release_receiver reject_from_receiver refuse_export forget_export redrive redrive_message
    purge_dead_letters retry_failing reject_failing
    purge_queue enable_notify_insert disable_notify_insert update_notify_insert convert_archive_partitioned unbind_topic
    set_policy set_schema set_category_policy set_category_rule drop_category_rule pause resume close_breaker
    grant_queue revoke_queue bind_topic create_subscription stop_worker set_sqs_queue start_sqs_move cancel_sqs_move
    create_token revoke_token rotate_token create_access_key revoke_access_key
    grant_all revoke_all grant_create follow_table_grants
"""
# Everybody may call these: they look at their arguments only, or return the queues on which the caller has a right.
FREE = frozenset(
    "acquire_queue_lock create_fifo_indexes_all detach_archive format_table_name validate_queue_name"  # noqa: SIM905
    " validate_routing_key validate_topic_pattern version get_shards list_queues metrics_all attention"
    " list_notify_insert_throttles list_topic_bindings test_routing send_batch_topic health count_messages"
    " latest_statistics list_schedules list_batches list_workers list_task_kinds upcoming_schedules"
    " poll pass_on note_change".split()
)
INCLUDED = {
    "bulk": {"send", "bulk"},
    "look": {"look"},
    "receive": {"look", "receive"},
    "manage": {"send", "look", "receive", "manage"},
    "admin": {"serve", "admin"},
}
QUEUE_VERBS = ("send", "look", "receive", "manage")
ALL_VERBS = (*QUEUE_VERBS, "create", "maintain", "serve", "admin")
ROLES = [
    ("nothing", None),
    *((verb, "jobs") for verb in (*QUEUE_VERBS, "bulk")),
    *((verb, "all") for verb in (*ALL_VERBS, "bulk")),
]
REFUSALS = {"42501", "42P01"}

# Arguments by their names, else by their types. {queue} is the queue that a call is about.
BY_NAME = {
    "queue": "'{queue}'",
    "queue_name": "'{queue}'",
    "into_queue": "'{queue}'",
    "match": "'$'",
    "patch": '\'[{{"op": "test", "path": "", "value": 1}}]\'',
    "new_messages": "null",
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
    "integer[]": "array[1]",
    "uuid[]": "'{{}}'",
    "int8multirange": "'{{}}'",
    "timestamp with time zone": "now()",
    "timestamp with time zone[]": "array[now()]",
}
# What returns nothing to refuse: it is refused where it divides by zero.
COUNTS = {"drop_queue": "::int", "send_topic": "", "unbind_topic": "::int", "unschedule": "::int"}
# They make a queue of that name.
MAKERS = {"create", "create_non_partitioned", "create_unlogged", "create_partitioned", "create_subscription"}
# They are about the schedule of that name.
SCHEDULES = {"unschedule", "pause_schedule", "run_schedule", "resume_schedule", "plan_schedule"}


def names(text: str) -> set[str]:
    return set(text.split())


# They refuse nothing: they do nothing to a queue on which the caller has no right.
QUIET = [
    ("drop_queue", ["text", "boolean"]),
    ("look_ahead", ["text[]"]),
    ("await_messages", ["text[]", "uuid", "boolean"]),
    ("report_worker", ["text[]", "text", "double precision", "integer", "jsonb"]),
]


def functions(connection: Connection) -> list[tuple[str, str, list[str], list[str]]]:
    """Return schema, name, names and types of the arguments of each public function."""
    return connection.execute(
        "select pronamespace::regnamespace::text, proname,"
        " coalesce(proargnames[1:pronargs], '{}'), array(select format_type(t, null)"
        "   from unnest(proargtypes) with ordinality u (t, place) order by place)"
        " from pg_proc where pronamespace in ('pgmq'::regnamespace, 'spanmq'::regnamespace)"
        " and prokind = 'f' and prorettype <> 'trigger'::regtype order by oid"
    ).fetchall()


def calls(
    connection: Connection, queue: str, constants: dict[str, str] | None = None
) -> list[tuple[str, str]]:
    """Return the name and a call of each public function, about the queue, with all its arguments.

    `constants` has values for arguments of these names.
    """
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
            value = (constants or {}).get(argument, value)
            values.append(f"{value}::{kind}".format(queue=queue))
        call = f"{schema}.{name}({', '.join(values)})"
        if name in COUNTS:
            made.append((name, f"select 1 / {call}{COUNTS[name]}"))
        else:
            made.append((name, f"select * from {call}"))
    return made


# Whatever of ours can be locked.
RELATIONS = """
    select c.oid::regclass::text, c.relkind::text, c.oid from pg_class c
    where c.relnamespace::regnamespace::text in ('pgmq', 'spanmq', 'spanmq_call', 'spanmq_core')
      and c.relkind in ('r', 'p', 'v', 'S') order by 3
"""


def fill(connection: Connection) -> None:
    """Make queues `jobs` and `others`, each with a message, a topic, a schedule and a run of the pipeline."""
    connection.execute("create temp table runs (queue text, run_id bigint)")
    for queue in ("jobs", "others"):
        connection.execute("select pgmq.create(%s), pgmq.send(%s, '1')", [queue, queue])
        connection.execute("select pgmq.bind_topic(%s, %s)", [queue, queue])
        connection.execute("select spanmq.schedule(%s, %s, '* * * * *', '1')", [f"of {queue}", queue])
        connection.execute(
            "insert into runs select %s, spanmq.begin_pipeline_run('export', %s)", [queue, queue]
        )


@contextmanager
def own_role(owner: Connection, ending: str = "") -> Iterator[str]:
    """Make a role without rights, which no test in another database has; it goes with all that it has."""
    database = one(owner, "select oid from pg_database where datname = current_database()")
    role = f"{ROLE}_{database}{ending}"
    owner.execute(f"create role {role}".encode())
    try:
        yield role
    finally:
        owner.execute(f"drop owned by {role}; drop role {role}".encode())


def outcome(connection: Connection, statement: str, role: str = ROLE) -> str:
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


def outcomes(connection: Connection, queue: str) -> dict[str, set[str]]:
    """Return for each function how its calls about the queue end: refused, or allowed."""
    ends: dict[str, set[str]] = {}
    for name, statement in calls(connection, queue):
        state = outcome(connection, statement)
        ends.setdefault(name, set()).add("refused" if is_refusal(name, state) else f"allowed ({state})")
    return ends


def needed(verb: str, where: str | None, queue: str) -> set[str]:
    included = INCLUDED.get(verb, {verb})
    expected = set(FREE)
    if where in ("all", queue):
        expected |= set().union(*(names(ON_QUEUES.get(level, "")) for level in included))
    if where == "all":
        expected |= set().union(*(names(ON_ALL.get(level, "")) for level in included))
    return expected


def give(connection: Connection, verb: str, where: str | None, role: str = ROLE) -> None:
    if where == "all":
        connection.execute("select spanmq.grant_all(%s, %s)", [role, verb])
    elif where is not None:
        connection.execute("select spanmq.grant_queue(%s, %s, %s)", [role, where, verb])


# The rights themselves: what a role may do with each object of ours, by what the catalogue has.

# Schema spanmq_call, where a function's verb is not that of the function of its name in ON_QUEUES.
CALLED = {
    "send": "upcoming_schedules",
    "look": "attention count_messages health latest_statistics list_batches list_schedules list_task_kinds list_workers"
    " metrics_all replay",
    "create": "create_queue create_partitioned_queue",
    "maintain": "plan_schedule upcoming_schedules",
    "serve": "move_sqs_messages",
}
# Every role may call these: they return what the catalogue shows to all, or check the caller.
CALLED_FREELY = names(
    "check_topic_send follow_now gains has_privilege_for"
    " known_queues may names_for number_of prove_caller queue_of_run queue_of_schedule"
    " has_table_privileges own_dependents refuse routed_queues sees targets_of wrapper_call"
)
# With the form that is written, beside one that records and is executed.
EXECUTABLE = """
    select n.nspname, p.proname, has_function_privilege(%s, p.oid, 'execute'),
        n.nspname = 'spanmq_call' and 'of_caller' <> all (coalesce(p.proargnames, '{}')) and exists (
            select from pg_proc r where r.pronamespace = p.pronamespace and r.proname = p.proname
            and r.proargnames[r.pronargs] = 'of_caller')
    from pg_proc p join pg_namespace n on n.oid = p.pronamespace
    where n.nspname in ('pgmq', 'spanmq', 'spanmq_call', 'spanmq_core') order by p.oid
"""
PRIVILEGES = """
    select c.oid::regclass::text, p from pg_class c cross join (select %s::name as role) r
    cross join unnest('{select,insert,update,delete,truncate,references,trigger}'::text[]) p
    where c.relnamespace::regnamespace::text in ('pgmq', 'spanmq', 'spanmq_call', 'spanmq_core')
      and c.relkind in ('r', 'p', 'v', 'm', 'f', 'S')
      and case when c.relkind <> 'S' then has_table_privilege(r.role, c.oid, p)
               when p in ('select', 'update') then has_sequence_privilege(r.role, c.oid, p) end
    order by 1, 2
"""


def verbs_of_call(name: str) -> set[str]:
    """Return the verbs of which each allows a function of schema spanmq_call, by its name without a number."""
    if name.startswith("may_"):
        return {name.removeprefix("may_")}
    listed = {verb for verb, text in ON_QUEUES.items() if name in names(text)}
    listed = {"look"} if name == "replay" else listed
    if name in names(RECORDED):
        listed |= {verb for verb, text in ON_ALL.items() if name in names(text)}
    return listed | {verb for verb, text in CALLED.items() if name in names(text)}


def included(verb: str) -> set[str]:
    """Return the verbs that a verb includes, itself among them."""
    return INCLUDED.get(verb, {verb})
