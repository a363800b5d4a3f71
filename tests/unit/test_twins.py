"""One verb, one word: SQL function, client's method, command, route. What has no twin is listed, with why."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest
import typer
from psycopg import Connection
from tests.service.route_table import ROUTES

import spanmq
from spanmq.cli.app import NOUNS, VERBS, app
from spanmq.client import Client

SQS_MOVES = (
    "start_sqs_move",
    "list_sqs_moves",
    "find_sqs_move",
    "cancel_sqs_move",
    "take_sqs_move",
    "note_sqs_move",
    "move_sqs_messages",
    "list_sqs_moved",
)
# Where the noun and the verb of a command do not make the name of the method.
METHOD_OF_COMMAND = {
    "ack": "ack_lease",
    "nack": "nack_lease",
    "message reject": "reject_lease",
    "message release": "release_lease",
    "dead-letter list": "dead_letters",
    "dead-letter show": "dead_letters_of",
    "dead-letter edit": "redrive_message",
    "dead-letter discard": "purge_dead_letters",
    "schedule create": "schedule",
    "schedule delete": "unschedule",
    "topic list": "list_topic_bindings",
    "topic match": "test_routing",
    "notification enable": "enable_notify_insert",
    "notification update": "update_notify_insert",
    "notification disable": "disable_notify_insert",
    "notification list": "list_notify_insert_throttles",
    "category list-rules": "list_category_rules",
    "category set-rule": "set_category_rule",
    "category drop-rule": "drop_category_rule",
    "category list-policies": "list_category_policies",
    "category set-policy": "set_category_policy",
    "grant create": "grant_queue",
    "grant revoke": "revoke_queue",
    "key create": "create_access_key",
    "key list": "list_access_keys",
    "key revoke": "revoke_access_key",
    "queue count": "glance",
    "queue groups": "list_groups",
    "queue leases": "list_leases",
    "queue segments": "list_segments",
    "receiver reject": "reject_from_receiver",
    "pipeline runs": "list_pipeline_runs",
}
METHODS_WITHOUT_COMMAND = {
    "ack": "`ack_lease`, by leases",
    "nack": "`nack_lease`, by leases",
    "reject": "`reject_lease`, by leases",
    "release": "`release_lease`, by leases",
    "begin_pipeline_run": "the jobs': spanmq.spark.jobs.recorded",
    "note_pipeline_run": "the jobs': spanmq.spark.jobs.recorded",
    "end_pipeline_run": "the jobs': spanmq.spark.jobs.recorded",
    "report_breaker": "the worker's",
    "create_batch": "in the transaction that sends the messages: spanmq.tasks",
    "list_batches": "the dashboard's",
    "wait_settled": "for the program that sent the messages",
    "store_result": "a handler's, in the transaction of its ack",
    "get_results": "for the program that sent the messages",
    "report_worker": "the worker's",
    "list_workers": "the dashboard's",
    "list_task_kinds": "the dashboard's",
    "open": "a command's own client",
    "close": "a command's own client",
    "connection": "a command's own client",
    "transaction": "a command's own client",
    "flavour": "`version` shows it",
    "send_batch": "`send` reads many from stdin",
    "send_batch_topic": "`topic send` reads many from stdin",
    "metrics_all": "`queue metrics` without a queue",
    "get_shards": "ShardedQueue's: `shard list`",
    "set_shards": "ShardedQueue's: `shard change`",
    "forget_shards": "ShardedQueue's: `shard drop`",
    "enter_shards": "ShardedQueue's, within a transaction",
    "shard_groups": "ShardedQueue's: `shard finish`",
    "check_token": "the service's",
    "open_session": "the dashboard's",
    "check_session": "the dashboard's",
    "close_session": "the dashboard's",
    "find_access_key": "the service's",
    "list_sqs_queues": "the service's",
    "set_sqs_queue": "the service's",
    **dict.fromkeys(SQS_MOVES, "the service's"),
}
COMMANDS_WITHOUT_METHOD = {
    "schema upgrade": "spanmq.schema",
    "schema verify": "spanmq.schema",
    "schema sql": "spanmq.schema",
    "schema uninstall": "spanmq.schema",
    "schema adopt": "spanmq.adopt",
    "demo": "spanmq.demo",
    "top": "`queue health` again and again",
    "psql": "PostgreSQL's own",
    "simulate": "spanmq.simulate",
    "shard create": "ShardedQueue.create",
    "shard list": "ShardedQueue.shards",
    "shard change": "ShardedQueue.change",
    "shard finish": "ShardedQueue.finish",
    "shard drop": "ShardedQueue.drop",
    "worker": "spanmq.worker",
    "serve": "spanmq.service",
    "encryption add-key": "spanmq.encryption",
    "encryption in-use": "spanmq.encryption",
    "pipeline export": "spanmq.spark.jobs",
    "pipeline report": "spanmq.spark.jobs",
    "pipeline backfill": "spanmq.spark.jobs",
    "pipeline migrate": "spanmq.spark.jobs",
    "pipeline dead-letters": "spanmq.spark.jobs",
}
# The client's word, where PGMQ's is another, and where one method stands for several functions.
FUNCTIONS_OF_METHOD = {
    "create_queue": {"create", "create_unlogged", "create_partitioned"},
    "purge": {"purge_queue"},
    "maintain": {"maintain", "upcoming_schedules", "plan_schedule"},
    "send": {"send", "send_messages"},
    "receive": {"receive", "await_messages", "look_ahead"},
    "send_batch": {"send_batch", "send_messages", "copy_begin", "copy_publish"},
    "version": {"version"},
    "ack_lease": {"ack"},
    "nack_lease": {"nack"},
    "reject_lease": {"reject"},
    "release_lease": {"release"},
    "create_batch": {"create_batch", "add_to_batch"},
    "wait_settled": {"await_settled", "unsettled"},
}
METHODS_WITHOUT_FUNCTION = {
    "open": "makes connections",
    "close": "ends them",
    "connection": "gives one",
    "transaction": "is PostgreSQL's own",
    "install": "is there before any function",
    "flavour": "asks whether there are any",
}
FUNCTIONS_WITHOUT_METHOD = {
    "grant_create": "is `grant_all(role, 'create')`",
    "list_bindings": "is `list_topic_bindings(queue)`",
    "list_throttles": "is `list_notify_insert_throttles()`",
    "create_non_partitioned": "is `create`",
    "convert_archive_partitioned": "of PGMQ's partitions; sets the retention here",
    "detach_archive": "does nothing, in PGMQ too",
    "create_fifo_index": "every queue has it here",
    "create_fifo_indexes_all": "every queue has it here",
    "notify_queue_listeners": "a trigger's, in PGMQ",
    "receiver_open": "the Spark source's: spanmq.spark.stream",
    "archive_position": "the Spark source's: spanmq.spark.archive_stream",
    "archive_piece": "the Spark source's: spanmq.spark.archive_stream",
    "archive_ranges": "the Spark source's: spanmq.spark.archive_stream",
    "receiver_claim": "the Spark source's: spanmq.spark.stream",
    "receiver_ranges": "the Spark source's: spanmq.spark.stream",
    "receiver_log": "the Spark source's: spanmq.spark.stream",
    "read_ranges": "the Spark source's: spanmq.spark.rows",
    "failures_between": "the Spark source's: spanmq.spark.rows",
    "failure_extent": "the Spark source's: spanmq.spark.rows",
    "dead_letters_between": "the Spark source's: spanmq.spark.rows",
    "dead_letter_extent": "the Spark source's: spanmq.spark.rows",
    "redrive_chosen": "the dead-letters job's: spanmq.spark.jobs.dead_letters",
    "discard_chosen": "the dead-letters job's: spanmq.spark.jobs.dead_letters",
    "note_export": "the export job's: spanmq.spark.jobs.export",
    "bulk_reserve": "the Spark sink's: spanmq.spark.writer",
    "bulk_seal": "the Spark sink's: spanmq.spark.writer",
    "bulk_publish": "the Spark sink's: spanmq.spark.writer",
    "bulk_published": "the backfill job's: spanmq.spark.jobs.backfill",
    "bulk_close": "the Spark sink's: spanmq.spark.writer",
    "acquire_queue_lock": "for the functions themselves",
    "validate_queue_name": "for the functions themselves",
    "validate_routing_key": "for the functions themselves",
    "validate_topic_pattern": "for the functions themselves",
    "format_table_name": "for the functions themselves",
    "read_with_poll": "the client waits outside of the server: `wait`",
    "read_grouped_with_poll": "the client waits outside of the server: `wait`",
    "read_grouped_rr_with_poll": "the client waits outside of the server: `wait`",
    "read_grouped_head_with_poll": "the client waits outside of the server: `wait`",
}
# The route's name, where it is another than the method's.
METHOD_OF_ROUTE = {
    "ack": "ack_lease",
    "nack": "nack_lease",
    "reject": "reject_lease",
    "release": "release_lease",
    "try_routing": "test_routing",
    "count_all_dead_letters": "count_dead_letters",
    "list_all_topic_bindings": "list_topic_bindings",
    "list_all_receivers": "list_receivers",
    "list_all_subscriptions": "list_subscriptions",
    "list_all_pipeline_runs": "list_pipeline_runs",
    "classify_in_queue": "classify",
    "list_category_rules_of_queue": "list_category_rules",
    "set_category_rule_of_queue": "set_category_rule",
    "drop_category_rule_of_queue": "drop_category_rule",
    "list_category_policies_of_queue": "list_category_policies",
    "set_category_policy_of_queue": "set_category_policy",
}
ROUTES_WITHOUT_METHOD = {
    "live": "of the process",
    "ready": "of the process and its database",
}
METHODS_WITHOUT_ROUTE = {
    "grant_all": "roles are the database's",
    "revoke_all": "roles are the database's",
    "begin_pipeline_run": "the jobs': spanmq.spark.jobs.recorded",
    "note_pipeline_run": "the jobs': spanmq.spark.jobs.recorded",
    "end_pipeline_run": "the jobs': spanmq.spark.jobs.recorded",
    "open": "the service's own client",
    "close": "the service's own client",
    "connection": "a request has none",
    "transaction": "a request is one",
    "report_breaker": "the worker's",
    "create_batch": "in the transaction that sends the messages: spanmq.tasks",
    "list_batches": "the dashboard's",
    "wait_settled": "for the program that sent the messages",
    "store_result": "a handler's, in the transaction of its ack",
    "get_results": "for the program that sent the messages",
    "report_worker": "the worker's",
    "list_workers": "the dashboard's",
    "list_task_kinds": "the dashboard's",
    "install": "for who keeps house",
    "flavour": "for who keeps house",
    "ack": "`ack_lease`, by receipts",
    "nack": "`nack_lease`, by receipts",
    "reject": "`reject_lease`, by receipts",
    "release": "`release_lease`, by receipts",
    "read": "PGMQ's, without a lease that could stand in a receipt: `receive`",
    "read_grouped": "PGMQ's, without a lease: `receive` from an ordered queue",
    "read_grouped_rr": "PGMQ's, without a lease: `receive` from an ordered queue",
    "read_grouped_head": "PGMQ's, without a lease: `receive` from an ordered queue",
    "set_vt": "PGMQ's, whoever holds the message: `extend`, `nack`",
    "enable_notify_insert": "for who listens to the database",
    "update_notify_insert": "for who listens to the database",
    "disable_notify_insert": "for who listens to the database",
    "list_notify_insert_throttles": "for who listens to the database",
    "get_shards": "ShardedQueue's",
    "set_shards": "ShardedQueue's",
    "forget_shards": "ShardedQueue's",
    "enter_shards": "ShardedQueue's",
    "shard_groups": "ShardedQueue's",
    "grant_queue": "of roles of the database, which tokens are not",
    "revoke_queue": "of roles of the database, which tokens are not",
    "list_grants": "of roles of the database, which tokens are not",
    "reject_from_receiver": "a stream's own, over Spark",
    "create_token": "no token makes another",
    "list_tokens": "no token sees another",
    "rotate_token": "no token changes another",
    "revoke_token": "no token ends another",
    "check_token": "each request's",
    "open_session": "who signs in on the dashboard",
    "check_session": "each page's",
    "close_session": "who signs out of the dashboard",
    "create_access_key": "no token makes a key",
    "list_access_keys": "no token sees a key",
    "revoke_access_key": "no token ends a key",
    "find_access_key": "each request's of the SQS protocol",
    "list_sqs_queues": "the SQS protocol's",
    "set_sqs_queue": "the SQS protocol's",
    **dict.fromkeys(SQS_MOVES, "the SQS protocol's"),
}
# Where the client holds the names of functions.
CALLERS = [
    path
    for pattern in ("*calls.py", "client_async.py", "bulk_async.py")
    for path in Path(str(spanmq.__file__)).parent.glob(pattern)
]
# What commands have beyond the method.
PARAMETERS_OF_COMMANDS = {
    "dsn",
    "checkpoint",
    "as_json",
    "yes",
    "is_text",
    "is_message",
    "batch",
    "every",
    "help",
}
# A repeated option is named in the singular.
NAMES_OF_OPTIONS = {
    (f"{noun} create", option): f"{option}s" for noun in ("token", "key") for option in ("queue", "verb")
}


def methods_of(kind: type) -> dict[str, Any]:
    members = {name: member for part in reversed(kind.__mro__[:-1]) for name, member in vars(part).items()}
    return {name: member for name, member in members.items() if not name.startswith("_")}


def commands() -> dict[str, Any]:
    program: Any = typer.main.get_command(app)
    return {name: program.commands[name] for name in VERBS} | {
        f"{noun} {verb}": command
        for noun in NOUNS
        for verb, command in program.commands[noun].commands.items()
    }


def method_of(command: str) -> str:
    """Return the method that a command calls: `queue create` is create_queue, `queue list` list_queues."""
    if command in METHOD_OF_COMMAND or command in COMMANDS_WITHOUT_METHOD:
        return METHOD_OF_COMMAND.get(command, command)
    noun, _, verb = command.replace("-", "_").rpartition(" ")
    names = (f"{verb}_{noun}", f"{verb}_{noun}s", f"{noun}_{verb}", verb)
    return next((name for name in names if name in methods_of(Client)), command)


def called_functions(existing: set[str]) -> set[str]:
    """Give the functions whose names the client holds as strings."""
    found: set[Any] = set()
    for path in CALLERS:
        tree = ast.parse(path.read_text("utf-8"))
        found |= {
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and node.value in existing
        }
    return found


@pytest.fixture
def functions(connection: Connection[Any]) -> set[str]:
    rows = connection.execute(
        "select proname from pg_proc where pronamespace in ('pgmq'::regnamespace, 'spanmq'::regnamespace)"
    ).fetchall()
    return {name for (name,) in rows}


def test_method_and_command_are_twins() -> None:
    methods, called = methods_of(Client).keys(), {method_of(name) for name in commands()}
    assert methods - called == METHODS_WITHOUT_COMMAND.keys()
    assert called - methods == COMMANDS_WITHOUT_METHOD.keys()


def test_parameter_and_option_are_twins() -> None:
    methods = methods_of(Client)
    for name, command in commands().items():
        if name not in COMMANDS_WITHOUT_METHOD:
            wanted = set(inspect.signature(methods[method_of(name)]).parameters) - {"self"}
            options = {NAMES_OF_OPTIONS.get((name, each.name), each.name) for each in command.params}
            assert options - PARAMETERS_OF_COMMANDS == wanted, name


def test_method_and_route_are_twins() -> None:
    routed = {METHOD_OF_ROUTE.get(route.name, route.name) for route in ROUTES}
    methods = methods_of(Client).keys()
    assert routed - methods == ROUTES_WITHOUT_METHOD.keys()
    assert methods - routed == METHODS_WITHOUT_ROUTE.keys()


def test_function_and_method_are_twins(functions: set[str]) -> None:
    expected = set()
    for method in methods_of(Client).keys() - METHODS_WITHOUT_FUNCTION.keys():
        expected |= FUNCTIONS_OF_METHOD.get(method, {method})
    assert functions - expected == FUNCTIONS_WITHOUT_METHOD.keys()
    assert expected - functions == set()
    assert called_functions(functions) == expected
