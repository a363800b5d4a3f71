"""Receivers, as a stream's reader calls them: what spark/tests/test_stream.py does not see through a reader."""

import uuid
from typing import Any

import psycopg
import pytest
from tests.sql.queue import Connection, one, rows, sqlstate_of
from tests.sql.race.sessions import Race

from spanmq import errors
from spanmq.client import Client


class Reader:
    """One start of a stream's reader."""

    def __init__(self, connection: Connection, receiver: str | None = None, label: str | None = None) -> None:
        self.connection = connection
        call = "select receiver_id, incarnation, settled from spanmq.receiver_open('orders', %s, %s)"
        [(self.receiver, self.incarnation, self.settled)] = rows(connection, call, receiver, label)
        # Of each batch, as the checkpoint has it.
        self.tokens: dict[int, uuid.UUID | None] = {0: None}
        # The number of messages that its last claim told.
        self.n = 0

    def token(self, batch: int) -> uuid.UUID | None:
        """Return the token of a batch, of this reader or another of the same receiver."""
        if batch not in self.tokens:
            self.tokens[batch] = one(
                self.connection, "select spanmq_core.token_of_batch(%s, %s)", self.receiver, batch
            )
        return self.tokens[batch]

    def claim(
        self,
        settled: int,
        quantity: int = 1000,
        last_id: int | None = None,
        max_bytes: int | None = None,
        *,
        ahead: bool = False,
    ) -> int:
        call = "select batch, token, n from spanmq.receiver_claim('orders', %s, %s, %s, %s, %s, %s, %s, %s)"
        limits, token = (quantity, last_id, max_bytes), self.token(settled)
        given = (self.receiver, self.incarnation, settled, *limits, token, ahead)
        [(batch, self.tokens[batch], self.n)] = rows(self.connection, call, *given)
        return int(batch)

    def ranges(self, after: int, batch: int, *, fail: bool = True) -> list[tuple[int, int, int]]:
        """Return the ids as ranges of one attempt without gaps, of whatever pieces there are."""
        call = "select * from spanmq.receiver_ranges('orders', %s, %s, %s, %s, %s, %s)"
        given = (self.receiver, self.incarnation, after, batch, fail, self.token(batch))
        joined: list[tuple[int, int, int]] = []
        for id_, attempt in sorted(
            (id_, attempt)
            for first, last, attempt, bitmap in rows(self.connection, call, *given)
            for id_ in range(first, last + 1)
            if bitmap is None or bitmap[id_ & 1023] == "1"
        ):
            if joined and joined[-1][1:] == (id_ - 1, attempt):
                joined[-1] = (joined[-1][0], id_, attempt)
            else:
                joined.append((id_, id_, attempt))
        return joined


@pytest.fixture
def client(connection: Connection) -> Client:
    client = Client(connection=connection)
    client.queues.create("orders")
    return client


def claimed(client: Client, n: int, quantity: int = 1000, label: str | None = None) -> Reader:
    """Send so many messages, and have a new reader claim up to a quantity of them as its first batch."""
    client.send_batch("orders", range(n))
    reader = Reader(client.connection, label=label)
    assert reader.claim(0, quantity) == 1
    return reader


def fails(connection: Connection, code: str, act: Any) -> None:
    assert sqlstate_of(connection, act) == code


def test_batch_has_at_most_so_many_bytes_and_one_message_at_least(
    client: Client, connection: Connection
) -> None:
    # Ten bytes each, with the quotes; the headers of the last have as many more.
    client.send_batch("orders", ["x" * 8] * 3000)
    client.send("orders", "x" * 8, headers={"a": "bcd"})
    client.send("orders", "x" * 998)
    reader = Reader(connection)
    sizes, told = [], []
    batch = 0
    for quantity, max_bytes in (
        (2000, 15_000),
        (2000, 105),
        (500, 9_000),
        (2000, 1),
        (2000, 9_995),
        (9, 900),
    ):
        batch = reader.claim(batch, quantity, max_bytes=max_bytes)
        told.append(reader.n)
        sizes.append(sum(last - first + 1 for first, last, _ in reader.ranges(batch - 1, batch)))
    assert sizes == told == [1500, 10, 500, 1, 990, 1]
    assert (reader.claim(batch, max_bytes=1), reader.n) == (batch, 0)
    fails(connection, "MQ002", lambda: reader.claim(batch, max_bytes=0))


def test_replay_of_a_batch_reads_the_same(client: Client, connection: Connection) -> None:
    reader = claimed(client, 10, 5)
    client.send_batch("orders", range(10))
    again = Reader(connection, reader.receiver)
    assert again.ranges(0, 1) == [(1, 5, 1)]
    # Also when it is settled: the checkpoint may be less durable than this server.
    assert again.claim(1) == 2
    assert again.ranges(0, 1) == [(1, 5, 1)]


def test_batch_that_a_dead_driver_claimed_comes_next(client: Client, connection: Connection) -> None:
    client.send_batch("orders", range(10))
    assert Reader(connection).claim(0, 5) == 1
    first = Reader(connection)
    assert first.claim(0, 5) == 1
    again = Reader(connection, first.receiver)
    assert (again.claim(0, 1000), again.n) == (1, 5)
    assert again.ranges(0, 1) == [(6, 10, 1)]


def test_claim_ahead_settles_nothing_and_its_batch_comes_next(client: Client, connection: Connection) -> None:
    reader = claimed(client, 15, 5)
    assert reader.claim(1, 5, ahead=True) == 2
    [held] = client.admin.receivers.list("orders")
    assert (held.settled, held.held) == (0, 10)
    # The driver died before its checkpoint had the first: both come again.
    again = Reader(connection, reader.receiver)
    assert (again.claim(0), again.ranges(0, 1)) == (1, [(1, 5, 1)])
    assert (again.claim(1), again.ranges(1, 2)) == (2, [(6, 10, 1)])
    # Where the policy limits what is in flight, or orders it, the present batch counts until it is settled.
    client.queues.set_policy("orders", ordered=True)
    assert again.claim(2, ahead=True) == 2
    assert (again.claim(2), again.ranges(2, 3)) == (3, [(11, 15, 1)])


@pytest.mark.parametrize("incarnation", [1, None])
def test_receiver_that_nobody_opened_takes_nothing(
    client: Client, connection: Connection, incarnation: int | None
) -> None:
    client.send("orders", 1)
    reader = Reader(connection)
    reader.receiver, reader.incarnation = uuid.uuid4(), incarnation
    fails(connection, "MQ054", lambda: reader.claim(0))
    fails(connection, "MQ054", lambda: reader.ranges(0, 1))
    assert len(client.receive("orders")) == 1


def test_label_is_bound_to_one_checkpoint(client: Client, connection: Connection) -> None:
    first = claimed(client, 3, label="lake")
    fails(connection, "MQ052", lambda: Reader(connection, label="lake"))
    client.admin.receivers.adopt("orders", "lake")
    fails(connection, "MQ051", lambda: first.claim(1))
    second = Reader(connection, label="lake")
    assert (second.receiver, second.settled) == (first.receiver, 0)
    assert second.claim(0) == 1


def test_label_goes_to_the_next_checkpoint_if_its_receiver_has_never_called(
    client: Client, connection: Connection
) -> None:
    first = Reader(connection, label="lake")
    second = Reader(connection, label="lake")
    # The first checkpoint may have its receiver all the same: the two do not share one.
    assert second.receiver != first.receiver
    fails(connection, "MQ051", lambda: first.claim(0))
    fails(connection, "MQ052", lambda: Reader(connection, first.receiver))
    # From its first call on a receiver has its label, also without a message.
    assert second.claim(0) == 0
    fails(connection, "MQ052", lambda: Reader(connection, label="lake"))
    client.admin.receivers.release("orders", "lake")
    reopened = Reader(connection, first.receiver)
    fails(connection, "MQ052", lambda: Reader(connection, label="lake"))
    assert reopened.claim(0) == 0


def test_released_receiver_does_not_get_its_label_back_from_another(
    client: Client, connection: Connection
) -> None:
    first = Reader(connection, label="lake")
    client.admin.receivers.release("orders", "lake")
    second = Reader(connection, label="lake")
    fails(connection, "MQ052", lambda: Reader(connection, first.receiver))
    assert second.claim(0) == 0
    client.admin.receivers.release("orders", "lake")
    assert Reader(connection, first.receiver).receiver == first.receiver


def test_released_messages_come_back_as_they_were(client: Client, connection: Connection) -> None:
    reader = claimed(client, 300, label="lake")
    assert client.admin.receivers.release("orders", "lake") == 300
    fails(connection, "MQ051", lambda: reader.claim(1))
    restarted = Reader(connection, reader.receiver)
    fails(connection, "MQ051", lambda: restarted.ranges(0, 1))
    received = client.receive("orders", 300)
    assert [message.attempt for message in received] == [1] * 300
    assert client.admin.receivers.list("orders")[0].held == 0


def test_release_settles_what_the_checkpoint_proves(client: Client, connection: Connection) -> None:
    reader = claimed(client, 10, 4)
    # The checkpoint is of a batch that a database had before it went back in time.
    release, token = client.admin.receivers.release, str(uuid.uuid4())
    with pytest.raises(errors.PositionUnknownError), connection.transaction():
        release("orders", str(reader.receiver), settled=1, settled_token=token)
    assert client.queues.metrics("orders").length == 10
    assert client.admin.receivers.release("orders", str(reader.receiver), settled=1) == 0
    assert client.queues.metrics("orders").length == 6


def test_nobody_else_settles_or_moves_what_a_batch_holds(client: Client, connection: Connection) -> None:
    client.send_batch("orders", range(3))
    client.send("orders", 4)
    reader = Reader(connection)
    assert reader.claim(0) == 1
    assert not client.delete("orders", 4)
    assert client.delete("orders", [1, 2]) == []
    assert client.delete("orders", [1, 2, 3, 4]) == []
    assert client.archive("orders", [1, 2, 3]) == []
    assert client.set_vt("orders", [1, 4], 0) == []
    assert {each.outcome for each in client.cancel("orders", [1, 4])} == {"cancelling"}
    assert client.queues.metrics("orders").length == 4
    assert reader.claim(1) == 1
    assert client.queues.metrics("orders").length == 0


def test_claim_takes_nothing_above_the_frozen_id(client: Client, connection: Connection) -> None:
    client.send_batch("orders", range(10))
    reader = Reader(connection)
    assert reader.claim(0, 1000, 7) == 1
    assert reader.ranges(0, 1) == [(1, 7, 1)]
    assert reader.claim(1, 1000, 7) == 1
    assert [message.attempt for message in client.receive("orders", 10)] == [1, 1, 1]


def test_settled_batches_are_archived_where_the_policy_says_so(client: Client) -> None:
    client.queues.set_policy("orders", archive_on_ack=True)
    reader = claimed(client, 300)
    assert client.inspect.archive("orders") == []
    assert reader.claim(1) == 1
    archived = client.inspect.archive("orders", 1000)
    assert [message.body for message in archived] == list(range(300))
    assert {message.attempt for message in archived} == {1}


def test_gaps_and_attempts_stay_with_their_messages(client: Client, connection: Connection) -> None:
    client.send_batch("orders", range(6))
    client.receive("orders", 2, lease=0)
    client.delete("orders", 4)
    reader = Reader(connection)
    assert reader.claim(0) == 1
    assert reader.ranges(0, 1) == [(1, 2, 2), (3, 3, 1), (5, 6, 1)]


def test_batch_of_scattered_messages_has_a_piece_for_each_thousand_ids(
    client: Client, connection: Connection
) -> None:
    ids = client.send_batch("orders", range(5000))
    client.delete("orders", ids[::2])
    reader = Reader(connection)
    reader.claim(0, 5000)
    assert reader.ranges(0, 1) == [(id_, id_, 1) for id_ in ids[1::2]]
    assert (
        one(
            connection,
            "select spanmq.reject_from_receiver('orders', %s, %s)",
            str(reader.receiver),
            ids[1:9:2],
        )
        == 4
    )
    again = Reader(connection, reader.receiver)
    assert again.ranges(0, 1) == [(id_, id_, 1) for id_ in ids[9::2]]
    pieces = (
        f"spanmq.receiver_ranges('orders', '{reader.receiver}', {again.incarnation}, 0, 1,"
        f" batch_token => '{again.token(1)}')"
    )
    assert one(connection, f"select count(*) from {pieces}") == len({id_ >> 10 for id_ in ids})


def test_receiver_of_another_queue_is_refused(client: Client, connection: Connection) -> None:
    client.queues.create("others")
    other = one(connection, "select receiver_id from spanmq.receiver_open('others')")
    fails(connection, "MQ054", lambda: Reader(connection, other))


def test_segment_stays_until_a_later_batch_is_settled(database: str) -> None:
    with (
        Client(database) as client,
        psycopg.connect(database, autocommit=True) as own,
        Race(database, queue="others") as race,
    ):
        client.queues.create("orders", partition_interval=256)
        # All segments but the first hold 256 messages, and the first is nearly full.
        own.execute("select setval('pgmq.q_orders_msg_id_seq', 16100)")
        client.send_batch("orders", range(200))
        reader = Reader(own)
        assert reader.claim(0) == 1
        client.delete("orders", client.send_batch("orders", range(1000)))
        client.send_batch("orders", range(10))
        assert reader.claim(1) == 2
        keep_house(race)
        assert first_segments(own) == 1
        assert reader.ranges(0, 1) == [(16101, 16300, 1)]
        assert own.execute("select count(*) from spanmq_core.log_2 where msg_id < 16301").fetchone() == (200,)
        assert reader.claim(2) == 2
        keep_house(race)
        assert first_segments(own) == 0


def first_segments(connection: Connection) -> int:
    """Count the first segment of `orders`, if it is there and not truncated."""
    segments = "spanmq_core.segment s join spanmq_core.queue q using (queue_id)"
    first = "q.name = 'orders' and s.lo = 0 and s.state = 'open'"
    return int(one(connection, f"select count(*) from {segments} where {first}"))


def keep_house(race: Race) -> None:
    # A call that only notes something for the next one says nothing.
    for _ in range(40):
        race.main.rows("select * from spanmq.maintain()")
        race.wait_for_other_databases()


def test_checkpoint_that_lags_behind_what_is_settled_is_told_of_the_loss(
    client: Client, connection: Connection
) -> None:
    client.send_batch("orders", range(15))
    reader = Reader(connection)
    for batch in range(4):
        reader.claim(batch, 5)
    # As if the checkpoint's newest files were lost: the newest batch is kept for a replay, and no other.
    again = Reader(connection, reader.receiver)
    assert again.claim(0) == 3
    fails(connection, "MQ053", lambda: again.ranges(0, 3))
    assert again.ranges(0, 3, fail=False) == [(11, 15, 1)]
    assert again.ranges(2, 3) == [(11, 15, 1)]


def test_rejected_messages_leave_the_batch_and_become_dead_letters(
    client: Client, connection: Connection
) -> None:
    reader = claimed(client, 10, 6, label="lake")
    # Of these 99 is nobody's, and 8 waits in the queue.
    assert client.admin.receivers.reject("orders", "lake", [2, 3, 8, 99], "no such customer") == 2
    fails(connection, "MQ051", lambda: reader.ranges(0, 1))
    again = Reader(connection, reader.receiver)
    assert again.claim(0) == 1
    assert again.ranges(0, 1) == [(1, 1, 1), (4, 6, 1)]
    dead = client.dead_letters.list("orders")
    assert [(each.message_id, each.error, each.category) for each in dead] == [
        (2, "no such customer", "PERMANENT"),
        (3, "no such customer", "PERMANENT"),
    ]
    assert client.queues.metrics("orders").length == 8
    assert again.claim(1) == 2
    assert again.ranges(1, 2) == [(7, 10, 1)]
    assert again.claim(2) == 2
    assert client.queues.metrics("orders").length == 0


def test_batch_of_which_all_is_rejected_keeps_its_number(client: Client, connection: Connection) -> None:
    reader = claimed(client, 3, 2)
    assert client.admin.receivers.reject("orders", str(reader.receiver), [1, 2], category="BUSINESS") == 2
    again = Reader(connection, reader.receiver)
    assert again.claim(0) == 1
    assert again.ranges(0, 1) == []
    assert again.claim(1) == 2
    assert again.ranges(1, 2) == [(3, 3, 1)]


def test_rejecting_nothing_lets_the_stream_run(client: Client, connection: Connection) -> None:
    client.send("orders", 1)
    reader = Reader(connection)
    assert reader.claim(0) == 1
    assert client.admin.receivers.reject("orders", str(reader.receiver), 99) == 0
    assert reader.claim(1) == 1
    no_receiver = pytest.raises(errors.InvalidArgumentError, match="no receiver lake")
    with no_receiver, connection.transaction():
        client.admin.receivers.reject("orders", "lake", 1)
    with no_receiver:
        client.admin.receivers.release("orders", "lake")


def test_batches_are_numbers(client: Client, connection: Connection) -> None:
    client.send("orders", 1)
    reader = Reader(connection)
    call = f"spanmq.receiver_claim('orders', '{reader.receiver}', {reader.incarnation}, null, 10)"
    fails(connection, "MQ002", f"select {call}")
    assert reader.claim(0) == 1
    ranges = f"spanmq.receiver_ranges('orders', '{reader.receiver}', {reader.incarnation}, null, 1)"
    fails(connection, "MQ002", f"select * from {ranges}")


def test_tokens_of_what_a_batch_leaves_in_the_queue_are_given_back(
    client: Client, connection: Connection
) -> None:
    client.send_batch("orders", range(10))
    rows(connection, """select spanmq.set_policy('orders', '{"rate_limit": 0.001, "rate_burst": 10}')""")
    reader = Reader(connection)
    assert [reader.claim(batch, 10, max_bytes=1) for batch in range(10)] == [*range(1, 11)]


def test_role_reads_the_log_by_a_view_and_needs_no_right_on_the_storage(
    client: Client, connection: Connection
) -> None:
    client.send_batch("orders", [1, 2])
    connection.execute("create role spanmq_test_stream")
    client.admin.grants.create("spanmq_test_stream", "orders", "receive")
    log_table = "select log_table from spanmq.receiver_log('orders')"
    assert one(connection, log_table) is None
    reader = Reader(connection)
    assert reader.claim(reader.claim(0)) == 1
    connection.execute("set local role spanmq_test_stream")
    assert one(connection, log_table) is None
    connection.execute("reset role")
    view = one(connection, log_table)
    connection.execute(f"grant select on {view} to spanmq_test_stream".encode())
    connection.execute("set local role spanmq_test_stream")
    assert one(connection, log_table) == view
    assert rows(connection, "select msg_id from pgmq.q_orders") == []
    assert rows(connection, f"select msg_id, message from {view}") == [(1, 1), (2, 2)]
    assert not one(connection, "select has_schema_privilege('spanmq_core', 'usage')")
    connection.execute("reset role")
    client.queues.drop("orders")
    assert one(connection, "select to_regclass(%s)", view) is None
