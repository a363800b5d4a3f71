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
from spanmq.cli.app import app
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
METHODS_WITHOUT_COMMAND = {
    "begin_pipeline_run": "the jobs': spanmq.spark.jobs.recorded",
    "note_pipeline_run": "the jobs': spanmq.spark.jobs.recorded",
    "end_pipeline_run": "the jobs': spanmq.spark.jobs.recorded",
    "report_breaker": "the worker's",
    "open": "what a program does with its client",
    "close": "what a program does with its client",
    "connection": "what a program does with its client",
    "transaction": "what a program does with its client",
    "flavour": "`version` tells it",
    "send_batch": "`send` reads many from stdin",
    "send_batch_topic": "`send-topic` reads many from stdin",
    "metrics_all": "`metrics` without a queue",
    "get_shards": "ShardedQueue's: `list-shards`",
    "set_shards": "ShardedQueue's: `change-shards`",
    "forget_shards": "ShardedQueue's: `drop-shards`",
    "enter_shards": "ShardedQueue's, within a transaction",
    "shard_groups": "ShardedQueue's: `finish-shards`",
    "create_token": "`tokens create`",
    "list_tokens": "`tokens list`",
    "rotate_token": "`tokens rotate`",
    "revoke_token": "`tokens revoke`",
    "check_token": "the service's",
    "open_session": "the dashboard's",
    "check_session": "the dashboard's",
    "close_session": "the dashboard's",
    "create_access_key": "`keys create`",
    "list_access_keys": "`keys list`",
    "revoke_access_key": "`keys revoke`",
    "find_access_key": "the service's",
    "list_sqs_queues": "the service's",
    "set_sqs_queue": "the service's",
    **dict.fromkeys(SQS_MOVES, "the service's"),
}
COMMANDS_WITHOUT_METHOD = {
    "upgrade": "spanmq.schema, for who keeps house",
    "verify": "spanmq.schema, for who keeps house",
    "sql": "spanmq.schema, for who keeps house",
    "uninstall": "spanmq.schema, for who keeps house",
    "adopt": "spanmq.adopt, once in a lifetime",
    "demo": "spanmq.demo",
    "top": "`health` again and again",
    "simulate": "spanmq.simulate",
    "create_shards": "ShardedQueue.create",
    "list_shards": "ShardedQueue.shards",
    "change_shards": "ShardedQueue.change",
    "finish_shards": "ShardedQueue.finish",
    "drop_shards": "ShardedQueue.drop",
    "worker": "spanmq.worker",
    "serve": "spanmq.service",
    "keys": "the client's methods for access keys, in two words",
    "encryption": "spanmq.encryption",
    "tokens": "the client's methods for tokens, in two words",
    "pipeline": "spanmq.spark.jobs, over Spark",
}
# The client's word, where PGMQ's is another, and where one method stands for several functions.
FUNCTIONS_OF_METHOD = {
    "create_queue": {"create", "create_unlogged", "create_partitioned"},
    "purge": {"purge_queue"},
    "maintain": {"maintain", "upcoming_schedules", "plan_schedule"},
    "send": {"send", "send_messages"},
    "receive": {"receive", "await_messages", "look_ahead"},
    "send_batch": {"send_batch", "send_messages", "copy_begin", "copy_publish"},
    "version": {"spanmq_version"},
    "ack_lease": {"ack"},
    "nack_lease": {"nack"},
    "reject_lease": {"reject"},
    "release_lease": {"release"},
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
    "begin_pipeline_run": "the jobs': spanmq.spark.jobs.recorded",
    "note_pipeline_run": "the jobs': spanmq.spark.jobs.recorded",
    "end_pipeline_run": "the jobs': spanmq.spark.jobs.recorded",
    "open": "the service's own client",
    "close": "the service's own client",
    "connection": "a request has none",
    "transaction": "a request is one",
    "report_breaker": "the worker's",
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
PARAMETERS_WITHOUT_OPTION = {
    ("ack", "messages"): "stdin",
    ("nack", "messages"): "stdin",
    ("reject", "messages"): "stdin",
    ("release", "messages"): "stdin",
}


def methods_of(kind: type) -> dict[str, Any]:
    members = {name: member for part in reversed(kind.__mro__[:-1]) for name, member in vars(part).items()}
    return {name: member for name, member in members.items() if not name.startswith("_")}


def commands() -> dict[str, Any]:
    group: Any = typer.main.get_command(app)
    return dict(group.commands)


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
        "select proname from pg_proc where pronamespace = 'pgmq'::regnamespace"
    ).fetchall()
    return {name for (name,) in rows}


def test_method_and_command_are_twins() -> None:
    methods, names = methods_of(Client).keys(), {name.replace("-", "_") for name in commands()}
    assert methods - names == METHODS_WITHOUT_COMMAND.keys()
    assert names - methods == COMMANDS_WITHOUT_METHOD.keys()


def test_parameter_and_option_are_twins() -> None:
    methods = methods_of(Client)
    for name, command in commands().items():
        method = name.replace("-", "_")
        if method not in COMMANDS_WITHOUT_METHOD:
            wanted = set(inspect.signature(methods[method]).parameters) - {"self"}
            wanted -= {parameter for owner, parameter in PARAMETERS_WITHOUT_OPTION if owner == method}
            assert {each.name for each in command.params} - PARAMETERS_OF_COMMANDS == wanted, name


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
