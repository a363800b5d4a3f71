"""Moves of the SQS protocol in SQL: which queues they lead to, what they record. Roles with `serve` may do all."""

import json

import pytest
from tests.sql.queue import Connection, one, rows, sqlstate_of

START = "select spanmq.start_sqs_move('dead', %s, 'arn', null, 0)"


def policy(queue: str) -> str:
    redrive = {"deadLetterTargetArn": f"arn:aws:sqs:x:000000000000:{queue}", "maxReceiveCount": 1}
    return json.dumps({"RedrivePolicy": json.dumps(redrive)})


@pytest.fixture
def queues(connection: Connection) -> Connection:
    """A queue `jobs` whose dead letters go to `dead`, a queue `secret`."""
    connection.execute("select pgmq.create('jobs'), pgmq.create('dead'), pgmq.create('secret')")
    connection.execute("select spanmq.set_sqs_queue('jobs', %s)", [policy("dead")])
    return connection


def spend(connection: Connection, queue: str = "jobs") -> tuple[int, int]:
    """Send a message and lease it; return the lease and the message's id."""
    connection.execute("select pgmq.send(%s, '1', '{\"a\": 2}'::jsonb)", [queue])
    [(lease_id, message_id)] = rows(connection, "select lease_id, msg_id from spanmq.receive(%s)", queue)
    return lease_id, message_id


MOVE = "select spanmq.move_sqs_messages(%s, %s, %s, array[%s::bigint], array['1'::jsonb], array[1]::bigint[], 3600)"


def test_task_leads_only_to_queues_that_name_its_source(queues: Connection) -> None:
    assert sqlstate_of(queues, START.replace("%s", "'secret'")) == "MQ004"
    assert sqlstate_of(queues, "select spanmq.start_sqs_move('secret', null, 'arn', null, 0)") == "MQ004"
    assert one(queues, START, "jobs") is not None


@pytest.mark.parametrize(
    ("attributes", "sqlstate"), [(policy("nowhere"), "42P01"), ('{"RedrivePolicy": "{"}', "MQ002")]
)
def test_redrive_policy_names_a_queue(queues: Connection, attributes: str, sqlstate: str) -> None:
    change = "select spanmq.set_sqs_queue('jobs', %s)"
    assert sqlstate_of(queues, lambda: rows(queues, change, attributes)) == sqlstate


def test_move_goes_only_where_the_policy_says(queues: Connection) -> None:
    lease_id, message_id = spend(queues)
    to_another = ["jobs", "secret", lease_id, message_id]
    assert sqlstate_of(queues, lambda: queues.execute(MOVE, to_another)) == "MQ004"
    # A lease that is not held moves nothing.
    assert queues.execute(MOVE, ["jobs", "dead", lease_id + 1, message_id]).fetchall() == []
    assert queues.execute("select count(*) from pgmq.q_dead").fetchone() == (0,)


@pytest.mark.parametrize(
    ("verbs", "sqlstate"),
    [(["receive"], "42501"), (["send"], "42501"), (["receive", "send"], None)],
)
def test_move_needs_the_rights_to_receive_and_to_send(
    queues: Connection, verbs: list[str], sqlstate: str | None
) -> None:
    queues.execute("create role spanmq_test_mover")
    queues.execute("select spanmq.grant_all('spanmq_test_mover', 'serve')")
    for verb in verbs:
        queue = "dead" if verb == "send" else "jobs"
        queues.execute("select spanmq.grant_queue('spanmq_test_mover', %s, %s)", [queue, verb])
    lease_id, message_id = spend(queues)
    queues.execute("set local role spanmq_test_mover")
    arguments = ["jobs", "dead", lease_id, message_id]
    if sqlstate is None:
        assert queues.execute(MOVE, arguments).fetchall() == [(message_id,)]
    else:
        assert sqlstate_of(queues, lambda: queues.execute(MOVE, arguments)) == sqlstate


def test_moved_message_keeps_its_headers_and_its_origin_through_several_queues(queues: Connection) -> None:
    queues.execute("select spanmq.set_sqs_queue('dead', %s)", [policy("secret")])
    lease_id, first_id = spend(queues)
    queues.execute(MOVE, ["jobs", "dead", lease_id, first_id])
    [(*moved, header)] = rows(queues, "select lease_id, msg_id, headers ->> 'a' from spanmq.receive('dead')")
    assert header == "2"
    queues.execute(MOVE, ["dead", "secret", *moved])
    listed = "select source, first_queue, first_id from spanmq.list_sqs_moved(%s, array[1, 2])"
    assert queues.execute(listed, ["dead"]).fetchall() == [("jobs", "jobs", first_id)]
    assert queues.execute(listed, ["secret"]).fetchall() == [("dead", "jobs", first_id)]
    queues.execute("select pgmq.drop_queue('dead')")
    assert queues.execute("select count(*) from spanmq_core.sqs_moved").fetchone() == (1,)


def test_origins_are_deleted_after_their_messages_expired(queues: Connection) -> None:
    queues.execute(MOVE, ["jobs", "dead", *spend(queues)])
    queues.execute("update spanmq_core.sqs_moved set expires_at = clock_timestamp()")
    queues.execute(MOVE, ["jobs", "dead", *spend(queues)])
    assert queues.execute("select count(*) from spanmq_core.sqs_moved").fetchone() == (1,)


def test_message_that_is_named_twice_is_not_sent_twice(queues: Connection) -> None:
    lease_id, message_id = spend(queues)
    twice = (
        f"select spanmq.move_sqs_messages('jobs', 'dead', {lease_id}, array[{message_id}, {message_id}]::bigint[],"
        " array['1', '1']::jsonb[], array[1, 1]::bigint[], 3600)"
    )
    assert sqlstate_of(queues, twice) == "MQ002"
