"""Moves of the SQS protocol in SQL: whose right counts, which queues they lead to, what they record."""

import json
from typing import Any

import psycopg
import pytest
from psycopg import Connection

ROLE = "spanmq_test_mover"
START = "select spanmq.start_sqs_move('dead', %s, 'arn', null, 0)"


def policy(queue: str) -> str:
    redrive = {"deadLetterTargetArn": f"arn:aws:sqs:x:000000000000:{queue}", "maxReceiveCount": 1}
    return json.dumps({"RedrivePolicy": json.dumps(redrive)})


@pytest.fixture
def queues(connection: Connection[Any]) -> Connection[Any]:
    """A queue `jobs` whose dead letters go to `dead`, a queue `secret`, and a role without any right."""
    connection.execute("select pgmq.create('jobs'), pgmq.create('dead'), pgmq.create('secret')")
    connection.execute("select spanmq.set_sqs_queue('jobs', %s)", [policy("dead")])
    connection.execute(f"create role {ROLE}".encode())
    connection.execute(f"grant usage on schema pgmq to {ROLE}".encode())
    return connection


def as_role(connection: Connection[Any], query: str, *values: object) -> Any:
    with connection.transaction():
        connection.execute(f"set local role {ROLE}".encode())
        row = connection.execute(query.encode(), values).fetchone()
        connection.execute("set local role none")
    return None if row is None else row[0]


def grant(connection: Connection[Any], queue: str, verb: str) -> None:
    connection.execute("select spanmq.grant_queue(%s, %s, %s)", [ROLE, queue, verb])


def sqlstate(connection: Connection[Any], query: str, *values: object) -> str | None:
    with pytest.raises(psycopg.Error) as raised, connection.transaction():
        as_role(connection, query, *values)
    return raised.value.sqlstate


def spend(connection: Connection[Any], queue: str = "jobs") -> tuple[int, int]:
    """Send a message and lease it; return the lease and the message's id."""
    connection.execute("select pgmq.send(%s, '1', '{\"a\": 2}'::jsonb)", [queue])
    row = connection.execute("select lease_id, msg_id from spanmq.receive(%s)", [queue]).fetchone()
    assert row is not None
    return row[0], row[1]


MOVE = "select spanmq.move_sqs_messages(%s, %s, %s, array[%s::bigint], array['1'::jsonb], 3600)"


def test_task_needs_the_right_to_send_to_its_destination(queues: Connection[Any]) -> None:
    grant(queues, "dead", "receive")
    assert sqlstate(queues, START, "jobs") == "42P01"
    assert sqlstate(queues, START, None) == "42501"
    grant(queues, "jobs", "send")
    assert as_role(queues, START, "jobs") is not None
    row = queues.execute("select asked_by from spanmq_core.sqs_move").fetchone()
    assert row == (ROLE,)


def test_task_leads_only_to_queues_that_name_its_source(queues: Connection[Any]) -> None:
    for queue in ("dead", "secret"):
        grant(queues, queue, "receive")
        grant(queues, queue, "send")
    assert sqlstate(queues, START, "secret") == "MQ004"
    assert sqlstate(queues, "select spanmq.start_sqs_move('secret', null, 'arn', null, 0)") == "MQ004"


def test_redrive_policy_needs_the_right_to_send_to_its_queue(queues: Connection[Any]) -> None:
    grant(queues, "jobs", "manage")
    change = "select spanmq.set_sqs_queue('jobs', %s)"
    assert sqlstate(queues, change, policy("secret")) == "42P01"
    assert sqlstate(queues, change, policy("nowhere")) == "42P01"
    assert sqlstate(queues, change, json.dumps({"RedrivePolicy": "{"})) == "MQ002"
    as_role(queues, change, json.dumps({"DelaySeconds": "1"}))
    grant(queues, "secret", "send")
    as_role(queues, change, policy("secret"))


def test_redrive_stops_when_the_role_that_set_it_may_not_send_any_more(queues: Connection[Any]) -> None:
    grant(queues, "jobs", "manage")
    grant(queues, "dead", "send")
    as_role(queues, "select spanmq.set_sqs_queue('jobs', %s)", policy("dead"))
    lease_id, message_id = spend(queues)
    moved = queues.execute(MOVE, ["jobs", "dead", lease_id, message_id]).fetchall()
    assert moved == [(message_id,)]
    queues.execute("select spanmq.revoke_queue(%s, 'dead', 'send')", [ROLE])
    lease_id, message_id = spend(queues)
    with pytest.raises(psycopg.errors.InsufficientPrivilege), queues.transaction():
        queues.execute(MOVE, ["jobs", "dead", lease_id, message_id])
    assert queues.execute("select count(*) from pgmq.q_jobs").fetchone() == (1,)


def test_move_goes_only_where_the_policy_says(queues: Connection[Any]) -> None:
    lease_id, message_id = spend(queues)
    with pytest.raises(psycopg.Error) as raised, queues.transaction():
        queues.execute(MOVE, ["jobs", "secret", lease_id, message_id])
    assert raised.value.sqlstate == "MQ004"
    # A lease that is not held moves nothing.
    assert queues.execute(MOVE, ["jobs", "dead", lease_id + 1, message_id]).fetchall() == []
    assert queues.execute("select count(*) from pgmq.q_dead").fetchone() == (0,)


def test_moved_message_keeps_its_headers_and_its_origin_through_several_queues(
    queues: Connection[Any],
) -> None:
    queues.execute("select spanmq.set_sqs_queue('dead', %s)", [policy("secret")])
    lease_id, first_id = spend(queues)
    queues.execute(MOVE, ["jobs", "dead", lease_id, first_id])
    row = queues.execute("select lease_id, msg_id, headers ->> 'a' from spanmq.receive('dead')").fetchone()
    assert row is not None
    assert row[2] == "2"
    queues.execute(MOVE, ["dead", "secret", row[0], row[1]])
    listed = "select source, first_queue, first_id from spanmq.list_sqs_moved(%s, array[1, 2])"
    assert queues.execute(listed, ["dead"]).fetchall() == [("jobs", "jobs", first_id)]
    assert queues.execute(listed, ["secret"]).fetchall() == [("dead", "jobs", first_id)]
    queues.execute("select pgmq.drop_queue('dead')")
    assert queues.execute("select count(*) from spanmq_core.sqs_moved").fetchone() == (1,)


def test_origins_are_deleted_after_their_messages_expired(queues: Connection[Any]) -> None:
    queues.execute(MOVE, ["jobs", "dead", *spend(queues)])
    queues.execute("update spanmq_core.sqs_moved set expires_at = clock_timestamp()")
    queues.execute(MOVE, ["jobs", "dead", *spend(queues)])
    assert queues.execute("select count(*) from spanmq_core.sqs_moved").fetchone() == (1,)
