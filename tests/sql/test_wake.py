"""Senders notify while somebody waits, and only then."""

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from uuid import UUID, uuid4

import psycopg
import pytest
from tests.patience import wait_until
from tests.sql.conformance.listening import listening
from tests.sql.queue import Connection, change_state, column, one, rows, sqlstate_of
from tests.sql.race.sessions import Race
from tests.sql.rights import own_role

KEY = uuid4()
# What a process hears that is woken for the queue.
CHANNEL = "bell"
WOKEN = (CHANNEL, "1")
SENDS = {
    "send": "select pgmq.send('MyOrders', '1')",
    "send with headers": "select pgmq.send('MyOrders', '1', '{}'::jsonb)",
    "send_batch": "select pgmq.send_batch('MyOrders', '{1,2}')",
    "send_messages": "select spanmq.send_messages('MyOrders', '{1,2}', priority => 1)",
    "send_topic": "select pgmq.send_topic('a', '1')",
    "copy": "select spanmq.copy_publish('MyOrders', array[first_id], array[last_id]) from copied",
}


@pytest.fixture
def session(database: str) -> Iterator[Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("select pgmq.create('MyOrders')")
        yield connection


class Process:
    """A process that waits for messages; `heard()` returns what has woken it since the last time."""

    def __init__(self, database: str, session: Connection, stack: ExitStack, key: UUID) -> None:
        self.key = key
        self._session = session
        text = "select channel from spanmq.await_messages('{MYORDERS}', %s)"
        [(self.channel,)] = session.execute(text.encode(), [key]).fetchall()
        self._listener = stack.enter_context(listening(database, self.channel, "pgmq.q_myorders.INSERT"))

    def wait(self) -> None:
        self._session.execute("select spanmq.poll(%s)", [self.key])

    def heard(self, sender: Connection) -> list[tuple[str, str]]:
        heard = self._listener.heard(sender)
        return [(CHANNEL if channel == self.channel else channel, payload) for channel, payload in heard]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def listener(database: str, session: Connection, stack: ExitStack) -> Process:
    return Process(database, session, stack, KEY)


def wait(session: Connection) -> None:
    """Announce that the process waits, which it does not otherwise."""
    session.execute("select spanmq.poll(%s)", [KEY])


def forget_last(session: Connection) -> None:
    """End the times in which nothing is woken again."""
    session.execute("select setval('spanmq_core.woken_1', 0)")
    session.execute(
        "select setval(c, (v >> 20 << 20) | ((v - 60) & 1048575)) from spanmq_core.listener,"
        " to_regclass('spanmq_core.bell_' || bell) c, pg_sequence_last_value(c) v where v > 0"
    )


def announced(session: Connection, seconds: float) -> None:
    """Set when the process announced that it waits, from now."""
    session.execute(
        "select setval(('spanmq_core.bell_' || bell)::regclass,"
        " ((extract(epoch from now()) * 1000)::bigint + %s) << 20) from spanmq_core.listener",
        [round(seconds * 1000)],
    )


@pytest.mark.parametrize("kind", SENDS)
def test_every_send_wakes_who_waits(session: Connection, listener: Process, kind: str) -> None:
    session.execute("select pgmq.bind_topic('a', 'MyOrders')")
    session.execute("create temporary table copied (first_id bigint, last_id bigint)")

    def send() -> None:
        with session.transaction():
            if kind == "copy":
                rows = session.execute("select * from spanmq.copy_begin('MyOrders', 3)").fetchall()
                [(log, first, last, at)] = rows
                session.execute("delete from copied")
                session.execute("insert into copied values (%s, %s)", [first, last])
                for msg_id in range(first, last + 1):
                    text = f"insert into spanmq_core.{log} (msg_id, enqueued_at) values (%s, %s)"
                    session.execute(text.encode(), [msg_id, at])
            session.execute(SENDS[kind].encode())

    send()
    assert listener.heard(session) == []
    wait(session)
    send()
    assert listener.heard(session) == [WOKEN]


def test_nobody_is_woken_after_the_wait(session: Connection, listener: Process) -> None:
    wait(session)
    announced(session, -30.1)
    rows(session, SENDS["send"])
    session.execute(SENDS["send_batch"].encode())
    assert listener.heard(session) == []


def batch(*groups: str | None) -> str:
    """Return what sends a message of each group, in one batch."""
    headers = ", ".join(
        "null" if group is None else f"""'{{"x-pgmq-group": "{group}"}}'""" for group in groups
    )
    bodies = f"array_fill('1'::jsonb, array[{len(groups)}])"
    return f"select pgmq.send_batch('MyOrders', {bodies}, array[{headers}]::jsonb[])"


def policy(settings: str) -> str:
    return f"select spanmq.set_policy('MyOrders', '{{{settings}}}')"


def take(n: int = 1) -> str:
    return f"select spanmq.receive('MyOrders', {n})"


# Of the newest lease.
LEASE = "'MyOrders', (select max(lease_id) from spanmq_core.unsettled)"
ORDERED, SEND = policy('"ordered": true'), SENDS["send"]
LATER = f"select spanmq.nack({LEASE}, '{{1}}', retry_in => 60)"
REJECT = f"select spanmq.reject({LEASE}, '{{1}}', 'no')"
ACK = f"select spanmq.ack({LEASE}, '{{1}}')"
GROUP = "array[jsonb_build_object('x-pgmq-group', 'a')]"
EXPIRING = f"select spanmq.send_messages('MyOrders', '{{1}}', {GROUP}, expires_in => 60)"
ONCE = "select spanmq.send_messages('MyOrders', '{1}', dedup_ids => '{a}')"
SETTLEMENTS = {
    "ack": ACK,
    "reject": REJECT,
    "nack": f"select spanmq.nack({LEASE}, '{{1}}', 'no', 'PERMANENT')",
}
REMOVALS = {
    "delete": "select pgmq.delete('MyOrders', 1)",
    "delete of many": "select pgmq.delete('MyOrders', array[1])",
    "archive": "select pgmq.archive('MyOrders', 1)",
    "archive of many": "select pgmq.archive('MyOrders', array[1])",
    "delete from the view": "delete from pgmq.q_myorders where msg_id = 1",
}
# What has been done when somebody begins to wait, and what is done then.
WAKING = {
    **{
        f"{name} of the first of group {group}": ((ORDERED, batch(group, group), take()), act)
        for name, act in SETTLEMENTS.items()
        for group in ("a", None)
    },
    **{
        f"{name} of the first of a group": ((ORDERED, batch("a", "a", "b"), take(2)), act)
        for name, act in REMOVALS.items()
    },
    "a send whose time is over": (
        (),
        "select pgmq.send('MyOrders', '1', clock_timestamp() - interval '1 minute')",
    ),
    "a message that is shown again": ((SEND, take()), "select pgmq.set_vt('MyOrders', 1, 0)"),
    "cancel of what a group waits for": (
        (ORDERED, batch("a", "a"), take(), LATER),
        "select spanmq.cancel('MyOrders', '{1}')",
    ),
    "the expiry of what a group waits for": (
        (
            ORDERED,
            EXPIRING,
            batch("a"),
            take(),
            LATER,
            "update spanmq_core.expiry set expires_at = clock_timestamp() - interval '1 second'",
        ),
        "select spanmq.maintain()",
    ),
    "a place in a limited group": (
        (policy('"max_in_flight_per_group": 2'), batch("a", "a", "a"), take(2)),
        ACK,
    ),
    "an ack below max_in_flight": ((policy('"max_in_flight": 1'), batch(None, None), take()), ACK),
    "a redrive": ((SEND, take(), REJECT), "select spanmq.redrive('MyOrders', delay => 0)"),
    "a discarded dead letter": (
        (policy('"ordered": true, "dead_letter_blocks_group": true'), batch("a", "a"), take(), REJECT),
        "select spanmq.purge_dead_letters('MyOrders')",
    ),
}
SILENT = {
    "a send for later": ((), "select pgmq.send('MyOrders', '1', 60)"),
    "a batch for later": (
        (),
        "select pgmq.send_batch('MyOrders', '{1}', clock_timestamp() + interval '1 minute')",
    ),
    "messages for later": ((), "select spanmq.send_messages('MyOrders', '{1}', delay => 60)"),
    "a duplicate": ((ONCE,), ONCE),
    "a message that is hidden longer": ((SEND, take()), "select pgmq.set_vt('MyOrders', 1, 60)"),
    "a retry for later": ((SEND, take()), LATER),
    "a redrive for later": ((SEND, take(), REJECT), "select spanmq.redrive('MyOrders', delay => 60)"),
    **{f"{name} in a plain queue": ((batch("a", "b"), take()), act) for name, act in SETTLEMENTS.items()},
    # Of a group whose messages wait, and are not this lease's.
    **{
        f"{name} of what another lease holds": ((ORDERED, batch("a", "a"), take(), batch("b"), take()), act)
        for name, act in SETTLEMENTS.items()
    },
    # What is ready is of another group, and was announced.
    **{
        f"{name} of the last of a group": ((ORDERED, batch("a"), take(), batch("b")), act)
        for name, act in SETTLEMENTS.items()
    },
    **{
        f"{name} of the last of a group": ((ORDERED, batch("a", "b", "b"), take(2)), act)
        for name, act in REMOVALS.items()
    },
}


@pytest.mark.parametrize("name", [*WAKING, *SILENT])
def test_who_waits_is_woken_by_what_it_can_receive_then(
    session: Connection, listener: Process, name: str
) -> None:
    before, act = WAKING.get(name) or SILENT[name]
    for statement in before:
        rows(session, statement)
    if name in WAKING and ORDERED in before:
        assert rows(session, take()) == [], "it has to wait"
    wait(session)
    rows(session, act)
    assert listener.heard(session) == ([WOKEN] if name in WAKING else [])
    if name in WAKING:
        assert len(rows(session, take())) == 1


SOON = {
    "send": "select pgmq.send('MyOrders', '1', 2)",
    "send at a time": "select pgmq.send('MyOrders', '1', clock_timestamp() + interval '2 seconds')",
    "send_batch": "select pgmq.send_batch('MyOrders', '{1}', 2)",
    "send_messages": "select spanmq.send_messages('MyOrders', '{1}', delay => 2)",
    "set_vt": "select pgmq.set_vt('MyOrders', 1, 2)",
    "nack": f"select spanmq.nack({LEASE}, '{{1}}', retry_in => 2)",
    "redrive": "select spanmq.redrive('MyOrders', delay => 2)",
}


@pytest.mark.parametrize("kind", SOON)
def test_message_for_soon_wakes_who_waits_so_that_it_looks_ahead(
    session: Connection, listener: Process, kind: str
) -> None:
    for statement in (SEND, take(), *([REJECT] if kind == "redrive" else [])):
        rows(session, statement)
    wait(session)
    rows(session, SOON[kind])
    assert listener.heard(session) == [WOKEN]
    # As if an hour more were to pass: the machine may have stood still since.
    change_state(session, "vt = vt + interval '1 hour'")
    assert 3000 < one(session, "select spanmq.look_ahead('MyOrders')") <= 3602


@pytest.mark.parametrize("is_batch", [True, False])
def test_run_that_is_settled_as_it_goes_wakes_nobody_before_its_end(
    session: Connection, listener: Process, is_batch: bool
) -> None:
    for statement in (ORDERED, *([batch(*"aaaa")] if is_batch else [batch("a")] * 4)):
        rows(session, statement)
    assert len(rows(session, take(3))) == 3
    wait(session)
    for message, woken in ((1, []), (2, []), (3, [WOKEN])):
        rows(session, f"select spanmq.ack({LEASE}, %s)", [message])
        assert listener.heard(session) == woken
    assert column(session, "select msg_id from spanmq.receive('MyOrders', 1)") == [4]


@pytest.mark.parametrize("call", ["pgmq.send('MyOrders', '1')", "pgmq.set_vt('MyOrders', 1, 0)"])
def test_notifications_are_throttled_and_go_on(session: Connection, listener: Process, call: str) -> None:
    rows(session, SENDS["send"])
    wait(session)
    bell = one(session, "select bell from spanmq_core.listener")
    sends = f"select {call}, pg_sequence_last_value('spanmq_core.bell_{bell}') & 1048575 from generate_series(1, 200)"
    woken = list(dict.fromkeys(at for _, at in rows(session, sends)))
    assert all((later - before) & 1048575 >= 50 for before, later in pairwise(woken)), (
        "milliseconds, however fast this machine is"
    )
    assert listener.heard(session) == [WOKEN]
    forget_last(session)
    rows(session, SENDS["send"])
    assert listener.heard(session) == [WOKEN]


def test_sender_that_rolls_back_wakes_nobody(session: Connection, listener: Process) -> None:
    wait(session)
    with session.transaction(force_rollback=True):
        rows(session, SENDS["send"])
    assert listener.heard(session) == []
    forget_last(session)
    rows(session, SENDS["send"])
    assert listener.heard(session) == [WOKEN]


def test_clock_that_was_set_back_neither_silences_nor_wakes_for_ever(
    session: Connection, listener: Process
) -> None:
    wait(session)
    session.execute("select setval('spanmq_core.woken_1', (1::bigint << 32) | 4294967295)")
    rows(session, SENDS["send"])
    assert listener.heard(session) == [WOKEN]
    announced(session, 3600)
    forget_last(session)
    rows(session, SENDS["send"])
    assert listener.heard(session) == []


@pytest.mark.parametrize("behind", [970, 29_000])
def test_process_waits_by_a_clock_that_is_ahead_of_the_senders(
    session: Connection, listener: Process, behind: int
) -> None:
    wait(session)
    session.execute(
        "select setval(c, ((v >> 20) + %(behind)s) << 20 | ((v + %(behind)s) & 1048575))"
        " from spanmq_core.listener, to_regclass('spanmq_core.bell_' || bell) c, pg_sequence_last_value(c) v",
        {"behind": behind},
    )
    rows(session, SENDS["send"])
    assert listener.heard(session) == [WOKEN]


def test_process_that_announces_itself_while_a_sender_searches_is_woken(race: Race) -> None:
    process, sender = race.begun(), race.open()
    register = "select channel from spanmq.await_messages(array[%s], %s)"
    channel = race.main.value(register, race.queue, KEY)
    poll = "select ready from spanmq.poll(%s)"
    race.main.rows(poll, KEY)
    bell = race.main.value("select bell from spanmq_core.listener")
    # The sender reads the clock, and then waits for this lock with its look at the bell.
    process.rows(f"alter sequence spanmq_core.bell_{bell} owner to current_user")
    sent = sender.waiting("select pgmq.send(%s, '1')", race.queue)
    now = race.main.value("select clock_timestamp()")
    wait_until(lambda: race.main.value("select clock_timestamp() > %s + interval '1 ms'", now))
    with listening(race.dsn, channel) as listener:
        assert process.column(poll, KEY) == [[]]
        process.commit()
        sent.rows()
        assert listener.heard(race.main.connection) == [(channel, str(race.queue_id))]


def test_both_kinds_of_notification_go_side_by_side(session: Connection, listener: Process) -> None:
    session.execute("select pgmq.enable_notify_insert('MyOrders', 0)")
    rows(session, SENDS["send"])
    assert listener.heard(session) == [("pgmq.q_myorders.INSERT", "")]
    wait(session)
    rows(session, SENDS["send"])
    assert sorted(listener.heard(session)) == [WOKEN, ("pgmq.q_myorders.INSERT", "")]


def test_senders_do_not_wait_for_each_other(session: Connection, database: str) -> None:
    wait(session)
    with psycopg.connect(database) as other:
        # Who waited for the other would wait for ever; who notifies may wait a moment for another database.
        other.execute("set lock_timeout = '20s'")
        with session.transaction():
            rows(session, SENDS["send"])
            other.execute(SENDS["send"].encode())
            other.execute("select spanmq.poll(%s)", [KEY])


def test_who_says_it_in_a_transaction_is_heard_at_once(
    session: Connection, listener: Process, database: str
) -> None:
    with psycopg.connect(database) as other:
        other.execute("select spanmq.poll(%s)", [KEY])
        rows(session, SENDS["send"])
        assert listener.heard(session) == [WOKEN]
        other.rollback()


def test_registration_does_not_wait_for_another_one(race: Race) -> None:
    one, two = race.begun(), race.open()
    register = "select queue_id from spanmq.await_messages(array[%s], %s)"
    one.rows(register, race.queue, uuid4())
    for _ in range(70):
        assert len(two.rows(register, race.queue, uuid4())) == 1
    one.commit()


def test_message_wakes_one_process_and_the_next_message_another(
    database: str, session: Connection, stack: ExitStack
) -> None:
    processes = [Process(database, session, stack, uuid4()) for _ in range(3)]
    for process in processes:
        process.wait()
    woken: set[UUID] = set()
    for number in range(1, 4):
        session.execute("select setval('spanmq_core.woken_1', 0)")
        rows(session, SENDS["send"])
        woken |= {process.key for process in processes if process.heard(session) == [WOKEN]}
        # Those that were woken are not woken again for 50 ms, or more on a slow machine.
        assert len(woken) <= number
    assert woken


def test_process_that_leaves_messages_wakes_the_next_and_itself_no_more(
    database: str, session: Connection, listener: Process, stack: ExitStack
) -> None:
    other = Process(database, session, stack, uuid4())
    for process in (listener, other):
        process.wait()
    passed = "select spanmq.pass_on(%s, '{1,2,77}', true)"
    assert rows(session, passed.replace("%s", f"'{KEY}'")) == [([],)]
    assert other.heard(session) == [], "nothing is left"
    listener.wait()
    rows(session, SEND)
    for process in (listener, other):
        process.heard(session)
    forget_last(session)
    assert rows(session, passed.replace("%s", f"'{KEY}'")) == [([1],)]
    assert (listener.heard(session), other.heard(session)) == ([], [WOKEN])
    forget_last(session)
    rows(session, SEND)
    assert (listener.heard(session), other.heard(session)) == ([], [WOKEN])


def test_poll_returns_what_is_ready_and_when_the_next_becomes_so(session: Connection) -> None:
    session.execute("select pgmq.create('second'), pgmq.create('third'), pgmq.create('fourth')")
    register = (
        "select queue, queue_id, is_ordered from spanmq.await_messages('{MyOrders,Second,third,none}', %s)"
    )
    rows(session, "select spanmq.set_policy('second', '{\"ordered\": true}')")
    registered = session.execute(register.encode(), [KEY]).fetchall()
    assert sorted(registered) == [("MyOrders", 1, False), ("Second", 2, True), ("third", 3, False)]
    poll = f"select ready, round(due_in) from spanmq.poll('{KEY}')"
    assert rows(session, poll.replace("round(due_in)", "due_in")) == [([], None)]
    rows(session, "select pgmq.send('second', '1'), pgmq.send('third', '1', 500), pgmq.send('fourth', '1')")
    [(ready, due_in)] = rows(session, poll)
    assert ready == [2]
    assert 0 < due_in <= 500
    rows(session, "select spanmq.receive('second', 1, 200)")
    [(ready, due_in)] = rows(session, poll)
    assert ready == []
    assert 0 < due_in <= 200
    rows(session, "select pgmq.send_batch('MyOrders', '{1,2}')")
    rows(session, """select spanmq.set_policy('MyOrders', '{"rate_limit": 0.01, "rate_burst": 1}')""")
    assert rows(session, poll)[0][0] == [1]
    rows(session, "select spanmq.receive('MyOrders', 1)")
    [(ready, due_in)] = rows(session, poll)
    assert ready == []
    assert 0 < due_in <= 100
    # A receive says what is wrong.
    rows(session, "select pgmq.drop_queue('third')")
    assert rows(session, poll)[0][0] == [3]


def test_only_a_role_with_the_right_can_wait_and_nobody_learns_its_channel(
    database: str, session: Connection, listener: Process
) -> None:
    session.execute("select pgmq.create('second')")
    with psycopg.connect(database, autocommit=True) as owner, own_role(owner) as role:
        session.execute("select spanmq.grant_queue(%s, 'second', 'receive')", [role])
        session.execute(f"set role {role}".encode())
        register = "select queue, channel from spanmq.await_messages('{MyOrders,second}', %s)"
        [(queue, channel)] = rows(session, register, uuid4())
        assert (queue, channel != listener.channel) == ("second", True)
        assert rows(session, f"select ready from spanmq.poll('{uuid4()}')") == [(None,)]
        assert rows(session, f"select spanmq.pass_on('{uuid4()}', '{{1}}')") == [([],)]
        for hidden in ("table spanmq_core.listener", "select setval('spanmq_core.bell_0', 1)"):
            assert sqlstate_of(session, hidden) == "42501"


def test_processes_of_one_queue_leave_bells_to_those_of_others(session: Connection) -> None:
    channel = "select count(channel) from spanmq.await_messages(array[%s], gen_random_uuid())"
    session.execute("select pgmq.create('second')")
    assert sum(one(session, channel, "MyOrders") for _ in range(100)) == 31
    assert sum(one(session, channel, "second") for _ in range(100)) == 4


def test_bell_of_a_process_that_ended_belongs_to_the_next_one(
    database: str, session: Connection, stack: ExitStack
) -> None:
    session.execute("select pgmq.create('second')")
    # All of them, so that the next process gets the only one that expires. Four of the second half are for a queue.
    for place in range(62):
        queue = "MyOrders" if place < 31 else f"other{place // 4}"
        rows(session, "select pgmq.create(%s), spanmq.await_messages(array[%s], %s)", queue, queue, uuid4())
    assert rows(session, f"select channel from spanmq.await_messages('{{second}}', '{uuid4()}')") == [(None,)]
    rows(session, "update spanmq_core.listener set expires_at = now() where bell = 17")
    [(channel,)] = rows(session, f"select channel from spanmq.await_messages('{{second}}', '{KEY}')")
    assert channel is not None
    assert rows(session, "select name from spanmq_core.queue where bells >> 17 & 1 = 1") == [("second",)]
    rows(session, f"select spanmq.poll('{KEY}')")
    with listening(database, channel) as next_one:
        rows(session, SEND)
        assert next_one.heard(session) == []
        rows(session, "select pgmq.send('second', '1')")
        assert next_one.heard(session) == [(channel, "2")]
