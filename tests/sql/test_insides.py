"""What people see when they look into a queue: true, bounded in price, and no more than they may see."""

import json
from itertools import pairwise

import pytest
from tests.sql.cost.counts import pages_touched
from tests.sql.queue import Connection

from spanmq.client import Client
from spanmq.model import Message


@pytest.fixture
def client(jobs: Connection) -> Client:
    return Client(connection=jobs)


def test_small_queue_is_counted_as_it_is_now(client: Client) -> None:
    [queue] = client.inspect.count()
    assert (queue.is_exact, queue.backlog, queue.visible) == (True, 0, 0)
    client.send_batch("jobs", list(range(100)))
    client.send_batch("jobs", list(range(7)), delay=3600)
    held = client.receive("jobs", 20, lease=600)
    client.ack(held[:3])
    client.nack(held[3:5], "no", retry_in=600)
    # PGMQ's way: these leave their lease one by one.
    client.delete("jobs", [message.message_id for message in held[5:7]])
    [queue] = client.inspect.count(["JOBS", "none"])
    counts = (queue.backlog, queue.visible, queue.in_flight, queue.delayed, queue.failed)
    assert counts == (102, 80, 13, 7, 2)
    [truth] = client.health.now()
    assert counts == (truth.backlog, truth.visible, truth.in_flight, truth.delayed, truth.failed)


def test_large_queue_is_not_counted(client: Client) -> None:
    for number in range(5):
        client.send("jobs", number)
    [queue] = client.inspect.count(most=5)
    assert (queue.is_exact, queue.backlog) == (True, 5)
    [queue] = client.inspect.count(most=4)
    assert not queue.is_exact
    assert {queue.backlog, queue.visible, queue.in_flight, queue.delayed, queue.failed} == {None}


def test_paused_queue_is_shown_as_paused(client: Client) -> None:
    client.queues.create("limited")
    client.queues.set_policy("limited", max_in_flight=1)
    assert [count.is_paused for count in client.inspect.count()] == [False, False]
    client.queues.pause("jobs")
    assert [count.is_paused for count in client.inspect.count()] == [True, False]


def test_open_breaker_is_shown_until_it_closes_or_its_time_is_over(
    client: Client, connection: Connection
) -> None:

    def shown() -> set[bool]:
        [looked], [healthy], [sampled] = client.inspect.count(), client.health.now(), client.health.latest()
        return {queue.breaker_open_until is not None for queue in (looked, healthy, sampled)}

    def reported(queue: str, worker: str, seconds: float | None = None) -> None:
        breaker = {} if seconds is None else {"breaker": {"open_for": seconds, "opening": 1}}
        connection.execute(
            "select from spanmq.report_worker(array[%s], %s, 1, 1, %s)",
            (queue, worker, json.dumps({queue: breaker})),
        )

    reported("jobs", "one", 600)
    reported("jobs", "two", 600)
    reported("jobs", "one")
    assert shown() == {True}
    reported("jobs", "two")
    assert shown() == {False}
    # The pause of one that is open may be over: its next trial is running, and not yet reported.
    reported("jobs", "trying", 0)
    assert shown() == {True}
    connection.execute("update spanmq_core.breaker set open_until = open_until - interval '5 s'")
    assert shown() == {False}


def test_breaker_that_a_command_has_closed_is_told_until_its_worker_reports_it_closed(
    client: Client, connection: Connection
) -> None:
    def reported(opening: int | None) -> list[tuple[str, str]]:
        breaker = (
            {} if opening is None else {"breaker": {"open_for": 60, "opening": opening, "error": "down"}}
        )
        reports = json.dumps({"jobs": breaker})
        call = "select * from spanmq.report_worker('{Jobs}', 'one', 1, 1, %s)"
        return connection.execute(call, (reports,)).fetchall()

    assert client.queues.close_breaker("jobs") == 0
    assert reported(1) == []
    assert client.health.latest()[0].breaker_error == "down"
    assert client.health.workers()[0].breaker_error == "down"
    assert client.queues.close_breaker("jobs") == 1
    assert client.health.latest()[0].breaker_error is None
    assert client.health.workers()[0].breaker_open_until is None
    # Again: an answer may be lost.
    assert reported(1) == reported(1) == [("jobs", "close_breaker")]
    # It has opened again since.
    assert reported(2) == []
    assert client.queues.close_breaker("jobs") == 1
    assert reported(None) == []
    assert reported(2) == []


def test_leases_are_told_oldest_first(client: Client) -> None:
    client.send_batch("jobs", list(range(600)))
    assert client.inspect.leases("jobs") == []
    first = client.receive("jobs", 300, lease=600)
    second = client.receive("jobs", 4, lease=0)
    client.delete("jobs", [first[0].message_id, first[-1].message_id])
    leases = client.inspect.leases("jobs")
    told = [(lease.messages, lease.attempt, lease.is_expired) for lease in leases]
    assert told == [(298, 1, False), (4, 1, True)]
    assert (leases[0].first_id, leases[0].last_id) == (2, 299)
    assert leases[0].leased_until == first[0].leased_until
    assert (leases[1].first_id, leases[1].last_id) == (second[0].message_id, second[-1].message_id)
    assert len(client.inspect.leases("jobs", 1)) == 1
    again = client.receive("jobs", 2, lease=600)
    assert {message.attempt for message in again} == {2}
    assert [lease.attempt for lease in client.inspect.leases("jobs")] == [1, 1, 2]


def test_groups_tell_what_they_wait_for(client: Client) -> None:
    client.queues.set_policy("jobs", ordered=True, dead_letter_blocks_group=True)
    for group in ("leased", "retrying", "dead", "free"):
        for number in range(3):
            client.send("jobs", number, group=group)
    client.send("jobs", 1, group="delayed", delay=3600)
    client.send("jobs", 1)
    held: dict[str | None, Message] = {}
    while len(held) < 4:
        for message in client.receive("jobs", 1, lease=600):
            held.setdefault(message.group, message)
    client.nack(held["retrying"], "no", retry_in=600)
    client.reject(held["dead"], "never")
    client.release(held["free"])
    groups = {group.group: group for group in client.inspect.groups("jobs")}
    states = {name: (group.state, group.first_id, group.messages) for name, group in groups.items()}
    assert states == {
        "leased": ("leased", 1, 3),
        "retrying": ("retrying", 4, 3),
        "dead": ("dead letter", 8, 2),
        "free": ("free", 10, 3),
        "delayed": ("delayed", 13, 1),
    }
    assert groups["leased"].until == held["leased"].leased_until
    assert groups["free"].until is None
    assert [group.group for group in client.inspect.groups("jobs", 4)] == [
        "leased",
        "retrying",
        "dead",
        "delayed",
    ]
    # What a receive then gives is what is told to be free.
    assert {message.group for message in client.receive("jobs", 10)} == {"free", None}


@pytest.mark.parametrize("was", ["delayed", "retrying", "leased"])
def test_group_that_became_due_is_listed(client: Client, was: str) -> None:
    client.send("jobs", 1, group="due", delay=0 if was == "delayed" else None)
    if was != "delayed":
        [message] = client.receive("jobs", 1, lease=600 if was == "retrying" else 0)
        if was == "retrying":
            client.nack(message, "no", retry_in=0)
    client.send("jobs", 2, group="due", delay=3600)
    states = [
        (group.group, group.state, group.until, group.first_id) for group in client.inspect.groups("jobs")
    ]
    assert states == [("due", "free", None, 1)]


def test_group_of_many_messages_is_counted_to_a_limit(client: Client) -> None:
    client.send_batch("jobs", list(range(1001)), group="long")
    [group] = client.inspect.groups("jobs")
    assert (group.messages, group.has_more) == (1000, True)


def test_segments_tell_what_is_in_them(client: Client, connection: Connection) -> None:
    client.send_batch("jobs", list(range(20_000)))
    client.subscriptions.create("also", "jobs")
    segments = client.inspect.segments("jobs")
    assert [segment.first_id for segment in segments] == sorted(
        (segment.first_id for segment in segments), reverse=True
    )
    assert {segment.state for segment in segments} <= {"ahead", "open"}
    assert sum(segment.bytes or 0 for segment in segments) == client.inspect.storage("jobs").log_bytes
    held = [segment for segment in segments if segment.first_id <= 20_000]
    assert all(message.state == "open" and (message.bytes or 0) > 100_000 for message in held)
    # A subscription's messages lie in the log that it follows.
    assert client.inspect.segments("also") == segments
    assert client.inspect.segments("jobs", 1) == segments[:1]


def test_samples_are_added_up_in_even_steps(client: Client, connection: Connection) -> None:
    client.queues.create("others")
    # Two minutes over three steps, a half of the first and of the last; and a minute of another queue.
    connection.execute(
        """
        insert into spanmq_core.statistics
        select q.queue_id, to_timestamp(floor(extract(epoch from clock_timestamp()) / 60) * 60 - s.back),
               s.seconds, s.sent, 0, 0, 0, 0, s.backlog, 0, 0, s.ready
        from spanmq_core.queue q
        join (values ('jobs', 330, 120, 1200, 50, 7.0), ('others', 420, 60, 60, 8, 9.0))
                 s (name, back, seconds, sent, backlog, ready)
            on s.name = q.name
        """
    )
    steps = client.health.total(seconds=600, step=60)
    assert len(steps) == 10
    lengths = {(after.began_at - before.began_at).total_seconds() for before, after in pairwise(steps)}
    assert lengths == {60.0}
    told = [(step.sent, step.backlog, step.oldest_ready_seconds) for step in steps if step.sent is not None]
    assert told == [(360.0, 33.0, 9.0), (600.0, 50.0, 7.0), (300.0, 25.0, 7.0)]

    def sent(queues: list[str], step: float) -> float:
        return sum(queue.sent or 0 for queue in client.health.total(queues, seconds=600, step=step))

    assert sent(["Jobs"], 60) == pytest.approx(1200)
    assert sent(["jobs", "others"], 100) == pytest.approx(1260)
    assert sent(["none"], 60) == 0


def test_every_death_of_a_message_is_told(client: Client) -> None:
    client.send_batch("jobs", list(range(40)))
    assert client.dead_letters.show("jobs", 1) == []
    client.reject(client.receive("jobs", 40), "together")
    [death] = client.dead_letters.show("jobs", 7)
    assert (death.message_id, death.error, death.redriven_at, death.body) == (7, "together", None, 6)
    client.dead_letters.edit("jobs", 7, delay=0)
    client.reject(client.receive("jobs", 1), "again")
    deaths = client.dead_letters.show("jobs", 7)
    assert [letter.error for letter in deaths] == ["together", "again"]
    assert deaths[0].redriven_at is not None
    assert deaths[1].redriven_at is None
    assert [letter.error for letter in client.dead_letters.show("jobs", 8)] == ["together"]


@pytest.mark.parametrize(
    "query",
    [
        "select * from spanmq.count_messages()",
        "select * from spanmq.list_leases('jobs', 50)",
        "select * from spanmq.list_groups('jobs', 50)",
        "select * from spanmq.list_segments('jobs', 50)",
        "select * from spanmq.dead_letters_of('jobs', 1)",
        "select * from spanmq.latest_statistics()",
    ],
)
def test_looking_costs_the_same_whatever_waits(own_connection: Connection, query: str) -> None:
    """Four times the messages, more than are read, in groups of two, a tenth of them leased or delayed."""

    def fill(first: int, last: int) -> None:
        own_connection.execute(
            """
            with later as (
                insert into spanmq_core.later
                    (queue_id, msg_id, lease_id, attempts, vt, last_read_at, group_hash, group_key)
                select (select queue_id from spanmq_core.queue), g, case g %% 20 when 0 then g else 0 end,
                       (g %% 20 = 0)::int, clock_timestamp() + interval '1 hour', now(),
                       hashtextextended('g' || g / 2, 0), 'g' || g / 2
                from generate_series(%s::bigint, %s::bigint) g where g %% 20 < 2)
            insert into spanmq_core.state (queue_id, msg_id, vt, group_hash, group_key)
            select (select queue_id from spanmq_core.queue), g, now(), hashtextextended('g' || g / 2, 0), 'g' || g / 2
            from generate_series(%s::bigint, %s::bigint) g where g %% 20 >= 2
            """,
            [first, last, first, last],
        )

    own_connection.execute("select pgmq.create('jobs'), pgmq.send('jobs', '1')")
    fill(1_000, 31_000)
    few = pages_touched(own_connection, query)
    fill(31_001, 121_000)
    # Each of a hundred and more descents into an index may pass one page more.
    assert pages_touched(own_connection, query) < few * 1.5 + 50


def test_constant_is_a_flat_line_whatever_the_seconds_of_its_samples(connection: Connection) -> None:
    connection.execute("select pgmq.create('flat')")
    connection.execute(
        """
        insert into spanmq_core.statistics (queue_id, sampled_at, seconds, sent, received, settled, failed, dead,
            backlog, visible, in_flight, oldest_ready_seconds)
        select q.queue_id, date_trunc('minute', clock_timestamp()) - n * interval '60.57 s', 60.57,
               0, 0, 0, 0, 0, 50, 50, 0, 1
        from spanmq_core.queue q cross join generate_series(0, 70) n where q.name = 'flat'
        """
    )
    rows = connection.execute("select backlog from spanmq.sum_statistics('{flat}', 3600, 60)").fetchall()
    assert {round(backlog, 6) for (backlog,) in rows[:-2]} == {50}
