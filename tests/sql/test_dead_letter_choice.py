"""Dead letters chosen one by one: those that wait, each once, whoever else acts."""

import pytest
from tests.sql.queue import Connection, one


@pytest.fixture
def dead(connection: Connection) -> Connection:
    connection.execute("select pgmq.create('jobs'), pgmq.create('others')")
    for queue in ("jobs", "others"):
        connection.execute("select pgmq.send_batch(%s, array['1','2','3','4']::jsonb[])", [queue])
        connection.execute(
            "select count(*) from (select lease_id, array_agg(msg_id) as ids from spanmq.receive(%(q)s, 4)"
            " group by 1) r,"
            " spanmq.reject(queue => %(q)s, lease_id => r.lease_id, msg_ids => r.ids, error => 'bad') x",
            {"q": queue},
        )
    return connection


def ids(connection: Connection, queue: str) -> list[int]:
    found = connection.execute("select dead_letter_id from spanmq.dead_letters(%s)", [queue])
    return [row[0] for row in found.fetchall()]


def test_chosen_are_put_back_once_and_only_of_their_queue(dead: Connection) -> None:
    mine, others = ids(dead, "jobs"), ids(dead, "others")
    redrive = "select spanmq.redrive_chosen('jobs', %s, delay => 0)"
    assert one(dead, redrive, [mine[2], mine[0], others[0], 10**9]) == 2
    assert one(dead, redrive, mine[:3]) == 1
    assert one(dead, redrive, []) == 0
    assert ids(dead, "jobs") == [mine[3]]
    assert ids(dead, "others") == others
    received = dead.execute("select msg_id from spanmq.receive('jobs', 10)").fetchall()
    assert received == [(1,), (2,), (3,)]
    assert one(dead, "select n from spanmq.count_dead_letters('jobs')") == 1


def test_chosen_are_discarded_and_what_was_put_back_stays(dead: Connection) -> None:
    mine = ids(dead, "jobs")
    one(dead, "select spanmq.redrive_chosen('jobs', %s)", mine[:1])
    assert one(dead, "select spanmq.discard_chosen('jobs', %s)", mine[:3]) == 2
    assert ids(dead, "jobs") == mine[3:]
    assert one(dead, "select count(*) from spanmq.dead_letters('jobs', redriven => true)") == 1
    assert one(dead, "select spanmq.state('jobs', 2)") == "unknown"
