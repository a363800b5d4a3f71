"""Taking, looking and settling."""

import json

import pytest
from tests.cli.program import ask, do, records, spanmq


@pytest.fixture
def filled(orders: str) -> str:
    """A queue with five messages, 1 to 5, whose groups are odd and even."""
    do(
        orders,
        """select pgmq.send_batch('orders', array(select to_jsonb(n) from generate_series(1, 5) n),
        array(select jsonb_build_object('x-pgmq-group', n % 2) from generate_series(1, 5) n))""",
    )
    return orders


def test_received_messages_are_acked_through_a_pipe(filled: str) -> None:
    printed = spanmq("receive", "orders", "-n", 3, "--lease", 60, "--slots", 3, "--json", dsn=filled)
    received = printed.records
    assert [(message["message_id"], message["body"], message["attempt"]) for message in received] == [
        (1, 1, 1),
        (2, 2, 1),
        (3, 3, 1),
    ]
    assert {message["slot"] for message in received} == {1, 2, 3}
    assert len({message["lease_id"] for message in received}) == 1
    assert records("ack", stdin=printed.out, dsn=filled) == [
        {"message_id": message_id, "outcome": "acked"} for message_id in (1, 2, 3)
    ]
    assert ask(filled, "select array_agg(msg_id order by msg_id) from pgmq.q_orders") == [4, 5]


def test_numbers_of_any_length_are_printed_and_acked_through_a_pipe(orders: str) -> None:
    do(orders, """select pgmq.send('orders', '[1e5000]', headers => '{"n": 1e5000}')""")
    do(orders, """select pgmq.send('orders', '2', headers => '[1e5000]')""")
    looked = spanmq("message peek", "orders", dsn=orders)
    assert (looked.code, looked.out.count("0" * 5000)) == (0, 3), looked.err
    printed = spanmq("receive", "orders", "-n", 2, "--json", dsn=orders)
    assert records("ack", stdin=printed.out, dsn=orders) == [
        {"message_id": message_id, "outcome": "acked"} for message_id in (1, 2)
    ]


def test_pipe_from_an_empty_queue_settles_nothing_and_is_no_error(orders: str) -> None:
    received = spanmq("receive", "orders", "--json", dsn=orders)
    assert (received.code, received.out) == (0, "")
    for words in (["ack"], ["nack"], ["message", "reject"], ["message", "release"]):
        done = spanmq(*words, "--json", stdin=received.out, dsn=orders)
        assert (done.code, done.out) == (0, ""), done.err


def test_ack_is_refused_for_what_the_lease_no_longer_holds(filled: str) -> None:
    received = records("receive", "orders", "-n", 2, "--lease", 600, dsn=filled)
    lease_id = received[0]["lease_id"]
    do(filled, "select pgmq.set_vt('orders', 1, 0)")
    assert records("ack", "orders", lease_id, 1, 2, dsn=filled) == [
        {"message_id": 1, "outcome": "stale"},
        {"message_id": 2, "outcome": "acked"},
    ]
    forged = json.dumps({**received[0], "lease_id": lease_id + 1})
    assert records("ack", stdin=forged, dsn=filled) == [{"message_id": 1, "outcome": "stale"}]


@pytest.mark.parametrize(
    "line", ['{"message_id": 1}', '{"queue": "orders", "lease_id": [1], "message_id": 1}']
)
def test_ack_of_a_bad_line_settles_nothing(filled: str, line: str) -> None:
    printed = spanmq("receive", "orders", "-n", 2, "--json", dsn=filled).out
    done = spanmq("ack", stdin=f"{printed}{line}\n", dsn=filled)
    assert (done.code, "not a message that receive --json printed" in done.err) == (2, True)
    assert ask(filled, "select count(*) from pgmq.q_orders") == 5


def test_pgmqs_reads(filled: str) -> None:
    def taken(*arguments: str) -> list[int]:
        ids = [record["message_id"] for record in records(*arguments, dsn=filled)]
        do(filled, "select pgmq.set_vt('orders', array[1,2,3,4,5], 0)")
        return sorted(ids)

    assert taken("message read", "orders", "-n", "2") == [1, 2]
    assert taken("message read", "orders", "-n", "9", "--conditional", "{}") == [1, 2, 3, 4, 5]
    assert taken("message read-grouped", "orders", "-n", "4") == [1, 2, 3, 5]
    assert taken("message read-grouped-rr", "orders", "-n", "4") == [1, 2, 3, 4]
    assert taken("message read-grouped-head", "orders", "-n", "4") == [1, 2]


def test_messages_are_looked_at_hidden_shown_and_taken_for_good(filled: str) -> None:
    for _ in range(2):
        shown = records("message peek", "orders", "-n", 2, "--after", 3, dsn=filled)
        assert [(message["message_id"], message["attempt"]) for message in shown] == [(4, 0), (5, 0)]
    hidden = records("message set-vt", "orders", 1, 2, "--delay", 600, dsn=filled)
    assert [record["message_id"] for record in hidden] == [1, 2]
    assert [record["body"] for record in records("message pop", "orders", "-n", 2, dsn=filled)] == [3, 4]
    records("message set-vt", "orders", 2, "--delay", 0, dsn=filled)
    assert [record["body"] for record in records("message pop", "orders", dsn=filled)] == [2]
    assert ask(filled, "select array_agg(msg_id order by msg_id) from pgmq.q_orders") == [1, 5]


def test_ids_and_messages_of_a_pipe_are_archived(filled: str) -> None:
    records("message delete", "orders", 1, 2, dsn=filled)
    stdin = '3\n\n{"message_id": 4, "body": null}\n'
    assert records("message archive", "orders", "-", stdin=stdin, dsn=filled) == [
        {"message_id": 3},
        {"message_id": 4},
    ]
    archived = records("message peek-archive", "orders", dsn=filled)
    assert [(message["message_id"], message["body"]) for message in archived] == [(3, 3), (4, 4)]
    assert all(message["archived_at"] for message in archived)
    assert records("message peek-archive", "orders", "--after", 3, "-n", 1, dsn=filled) == archived[1:]
    assert ask(filled, "select array_agg(msg_id order by msg_id) from pgmq.q_orders") == [5]


def test_wait_ends_when_time_is_over(orders: str) -> None:
    done = spanmq("receive", "orders", "--wait", "0.05", dsn=orders)
    assert (done.code, done.out) == (0, "no messages\n")
    assert records("message read", "orders", "--wait", "0.05", dsn=orders) == []
