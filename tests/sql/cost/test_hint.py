"""Hints: under a snapshot held elsewhere a claim begins where the last one found something."""

from collections.abc import Iterator

import psycopg
import pytest
from tests.sql.cost import counts
from tests.sql.cost.counts import Connection

SENT = 1300
SETTLED = 1200
GROUPED_CLAIMS = (
    "select * from pgmq.read_grouped_head('jobs', 30, 1)",
    "select * from pgmq.read_grouped_head('jobs', 30, 10)",
    "select * from pgmq.read_grouped('jobs', 30, 10)",
    "select * from pgmq.read_grouped_rr('jobs', 30, 10)",
)
CLAIMS = (
    "select * from pgmq.receive('jobs')",
    "select * from pgmq.receive('jobs', 10)",
    "select * from pgmq.read('jobs', 30, 1)",
    "select * from pgmq.read('jobs', 30, 10)",
    *GROUPED_CLAIMS,
)
POLICIES = ('{"ordered": true}', '{"max_in_flight_per_group": 2}')
# So many groups that those that are left have one message each.
SEND = """
select count(id) from generate_series(1, %s) n,
    pgmq.send('jobs', to_jsonb(n), jsonb_build_object('x-pgmq-group', mod(n, 200)::text)) id
"""
FEW_ENTRIES = 200
SET_HINT = """
select set_config('spanmq.hint_' || q.queue_id, concat_ws(' ', %s::text, h.until, '0', '0'), false),
       set_config('spanmq.hints', h.until, false)
from spanmq.queue q, cast(spanmq.hint_ms(clock_timestamp() + interval '50 seconds') as text) h (until)
where q.name = 'jobs'
"""


@pytest.fixture
def session(database: str) -> Iterator[Connection]:
    """Give a session beside one whose snapshot is older than the messages, of which most are settled."""
    with (
        psycopg.connect(database, autocommit=True) as holder,
        psycopg.connect(database, autocommit=True) as opened,
    ):
        opened.execute("select pgmq.drop_queue('jobs'), pgmq.create('jobs')")
        holder.execute("begin isolation level repeatable read")
        holder.execute("select 1")
        opened.execute(SEND, [SENT])
        opened.execute(
            "select pgmq.ack('jobs', max(lease_id), array_agg(msg_id)) from pgmq.receive('jobs', %s)",
            [SETTLED],
        )
        yield opened


def entries_passed(session: Connection, claim: str, index: str = "span_ready") -> int:
    return counts.entries_passed(session, claim, index)


def test_claims_along_a_hint_pass_no_dead_entries(session: Connection) -> None:
    # What filled it may have met a slow look.
    session.execute("select set_config('spanmq.hints', '', false)")
    session.execute("select set_config('spanmq.hint_' || queue_id, '', false) from spanmq.queue")
    assert min(entries_passed(session, claim) for claim in CLAIMS) >= SETTLED
    session.execute(SET_HINT, [SETTLED - 50])
    assert max(entries_passed(session, claim) for claim in CLAIMS) < FEW_ENTRIES


def test_no_claim_passes_the_leases_of_what_was_settled(
    session: Connection,
) -> None:
    """They lie beyond now, where no hint leads past them."""
    for claim in (*CLAIMS, "select * from pgmq.receive('jobs', 10, 60, 2)"):
        assert entries_passed(session, claim, "span_due") < FEW_ENTRIES


@pytest.mark.parametrize("quantity", [1, 10])
@pytest.mark.parametrize("policy", POLICIES)
def test_claims_of_groups_along_a_hint_pass_no_dead_entries(
    session: Connection, policy: str, quantity: int
) -> None:
    claim = f"select * from pgmq.receive('jobs', {quantity})"
    session.execute("select pgmq.set_policy('jobs', %s::jsonb)", [policy])
    assert entries_passed(session, claim) >= SETTLED
    session.execute(SET_HINT, [SETTLED - 50])
    assert entries_passed(session, claim) < FEW_ENTRIES


@pytest.mark.parametrize("quantity", [1, 10])
@pytest.mark.parametrize("policy", POLICIES)
def test_claims_of_groups_go_round_no_ring_where_the_oldest_are_all(
    session: Connection, policy: str, quantity: int
) -> None:
    session.execute("select pgmq.set_policy('jobs', %s::jsonb)", [policy])
    session.execute(
        "select pgmq.delete('jobs', array_agg(id)) from generate_series(%s::bigint, %s) id",
        [SETTLED + quantity + 1, SENT],
    )
    claim = f"select * from pgmq.receive('jobs', {quantity})"
    assert entries_passed(session, claim, "span_group") < SETTLED / 2


@pytest.mark.parametrize("quantity", [1, 10])
def test_hint_moves_on_with_the_claims(session: Connection, quantity: int) -> None:
    session.execute(SET_HINT, [1])
    taken = session.execute("select msg_id from pgmq.receive('jobs', %s)", [quantity]).fetchall()
    assert taken == [(SETTLED + 1 + place,) for place in range(quantity)]
    hint = session.execute(
        "select split_part(current_setting('spanmq.hint_' || queue_id), ' ', 1)"
        " from spanmq.queue where name = 'jobs'"
    ).fetchone()
    assert hint == (str(SETTLED + 1),)


@pytest.mark.parametrize("quantity", [1, 10])
def test_look_that_was_slow_starts_a_hint(session: Connection, quantity: int) -> None:
    dead = 8000
    session.execute(SEND, [dead])
    settled = session.execute(
        "select count(*) from (select max(lease_id) lease, array_agg(msg_id) ids"
        " from pgmq.receive('jobs', %s)) r, pgmq.ack('jobs', lease, ids)",
        [dead],
    ).fetchone()
    assert settled == (dead,)
    session.execute("select set_config('spanmq.hints', '', false)")
    session.execute("select set_config('spanmq.hint_' || queue_id, '', false) from spanmq.queue")
    taken = session.execute("select msg_id from pgmq.receive('jobs', %s)", [quantity]).fetchall()
    assert taken == [(SETTLED + dead + 1 + place,) for place in range(quantity)]
    hint = session.execute(
        "select split_part(current_setting('spanmq.hint_' || queue_id), ' ', 1)"
        " from spanmq.queue where name = 'jobs'"
    ).fetchone()
    assert hint == (str(SETTLED + dead + 1),)


DEAD = 20_000
STORE_DEAD = """
insert into spanmq.span (queue_id, lo, lease_id, n, state)
select queue_id, mod(i, %s), i, 1, 'r' from spanmq.queue, generate_series(1, %s) i
"""


def store_dead(session: Connection) -> None:
    """Leave so many dead entries that to pass them is slow, in a session that knows nothing of them."""
    session.execute(STORE_DEAD, [SETTLED, DEAD])
    session.execute("delete from spanmq.span where lo < %s", [SETTLED])
    session.execute("select set_config('spanmq.hints', '', false)")
    session.execute("select set_config('spanmq.hint_' || queue_id, '', false) from spanmq.queue")


def looks_from_the_left(session: Connection, claim: str) -> int:
    return entries_passed(session, claim) // DEAD


def test_hint_that_ran_out_is_renewed_by_one_look(session: Connection) -> None:
    store_dead(session)
    # At first two: to see that it was not the machine that was slow.
    assert [looks_from_the_left(session, claim) for claim in CLAIMS] == [2] * len(CLAIMS)
    session.execute(FORGED, ["1 UNTIL 0 UNTIL", -1])
    assert [looks_from_the_left(session, claim) for claim in CLAIMS] == [1] * len(CLAIMS)
    for claim in CLAIMS:
        session.execute(FORGED, ["1 UNTIL 0 UNTIL", -1])
        session.execute(claim.encode())
        assert entries_passed(session, claim) < FEW_ENTRIES, claim


def test_claims_of_spans_with_gaps_renew_a_hint_by_one_look(
    session: Connection,
) -> None:
    session.execute("select pgmq.purge_queue('jobs')")
    session.execute("select pgmq.send_batch('jobs', array_fill('1'::jsonb, array[200]))")
    session.execute("select pgmq.delete('jobs', array_agg(msg_id)) from pgmq.q_jobs where mod(msg_id, 2) = 0")
    store_dead(session)
    session.execute(FORGED, ["1 UNTIL 0 UNTIL", -1])
    claims = [claim for claim in CLAIMS if claim not in GROUPED_CLAIMS]
    assert [looks_from_the_left(session, claim) for claim in claims] == [1] * len(claims)


@pytest.mark.parametrize("quantity", [1, 10])
def test_that_a_hint_ran_out_is_told_once_and_for_a_minute(session: Connection, quantity: int) -> None:
    """Else a machine that is slow at times would go on with hints for ever after the snapshot has gone."""
    claim = f"select * from pgmq.receive('jobs', {quantity})"
    store_dead(session)
    session.execute(FORGED, ["1 UNTIL 0 UNTIL", -61])
    assert looks_from_the_left(session, claim) == 2
    session.execute(FORGED, ["1 UNTIL 0 UNTIL", -1])
    told = "select (spanmq.get_hint(queue_id, clock_timestamp())).ready_ran_out from spanmq.queue"
    assert session.execute(told).fetchone() == (True,)
    assert session.execute(told).fetchone() == (False,)
    assert looks_from_the_left(session, claim) == 2


@pytest.mark.parametrize("quantity", [1, 10])
def test_hint_moves_on_with_what_falls_due(session: Connection, quantity: int) -> None:
    """All leases of settled messages fall due in the end; only those of a moment ago are looked at."""
    clock = "select spanmq.hint_ms(clock_timestamp())"
    row = session.execute(clock).fetchone()
    assert row is not None
    session.execute(FORGED, ["1 UNTIL 0 UNTIL", 50])
    session.execute(f"select * from pgmq.receive('jobs', {quantity})".encode())
    due_from = session.execute(
        "select split_part(current_setting('spanmq.hint_' || queue_id), ' ', 3)::bigint"
        " from spanmq.queue where name = 'jobs'"
    ).fetchone()
    assert due_from is not None
    assert int(str(due_from[0])) >= int(str(row[0]))


# A hint: where to begin, until when (so many seconds from now), and the same for what falls due.
FIRST, LEFT = SETTLED + 1, SETTLED + 91
FORGED = """
select set_config('spanmq.hint_' || q.queue_id, replace(%s, 'UNTIL', h.until), false),
       set_config('spanmq.hints', greatest(h.until, n.until), false)
from spanmq.queue q, cast(spanmq.hint_ms(clock_timestamp() + make_interval(secs => %s)) as text) h (until),
     cast(spanmq.hint_ms(clock_timestamp() + interval '50 seconds') as text) n (until)
where q.name = 'jobs'
"""


def begins_at(session: Connection, claim: str, hint: str, seconds: float) -> object:
    """Give the first message of a claim under such a hint."""
    with session.transaction(force_rollback=True):
        session.execute(FORGED, [hint, seconds])
        row = session.execute(claim.encode()).fetchone()
        return row and row[0]


def test_hint_that_is_none_is_ignored(session: Connection) -> None:
    good = f"{LEFT} UNTIL 0 0"
    cases = {
        "good": (good, 50),
        "too old": (good, -1),
        "in the future": (good, 3600),
        "three parts": (f"{LEFT} UNTIL 0", 50),
        "five parts": (f"{LEFT} UNTIL 0 0 0", 50),
        "an empty part": (f"{LEFT}  0 0", 50),
        "no number": ("x UNTIL 0 0", 50),
        "negative": (f"-{LEFT} UNTIL 0 0", 50),
        "a fraction": (f"{LEFT}.5 UNTIL 0 0", 50),
        "of SQL": ("'; drop table spanmq.span; -- UNTIL 0 0", 50),
        "too long": (f"{LEFT}{' ' * 60}UNTIL 0 0", 50),
        "numbers too long": (f"{'9' * 25} {'9' * 25} 0 0", 50),
        "empty": ("", 50),
        "spaces": ("   ", 50),
        "the format before": ('{"1": "(9999999999,infinity,,)"}', 50),
    }
    for claim in CLAIMS:
        found = {name: begins_at(session, claim, *case) for name, case in cases.items()}
        assert found == dict.fromkeys(cases, FIRST) | {"good": LEFT}, claim


def test_hint_beyond_all_messages_hides_none(session: Connection) -> None:
    for claim in CLAIMS:
        assert begins_at(session, claim, f"{'9' * 15} UNTIL 0 0", 50) == FIRST, claim


def test_head_of_a_group_comes_first_also_from_left_of_a_hint(
    session: Connection,
) -> None:
    session.execute(
        "select pgmq.send('jobs', '1', jsonb_build_object('x-pgmq-group', mod(%s, 200)::text))", [FIRST]
    )
    for claim in GROUPED_CLAIMS:
        assert begins_at(session, claim, f"{SENT + 1} UNTIL 0 0", 50) == FIRST, claim


def test_what_a_claim_of_groups_gives_back_at_once_is_left_of_no_hint(
    session: Connection,
) -> None:
    session.execute("select pgmq.set_policy('jobs', %s::jsonb)", [POLICIES[1]])
    by_age = "select set_config('spanmq.turn_' || queue_id, '0', false) from spanmq.queue"
    due = "spanmq.hint_ms(clock_timestamp())"
    row = session.execute(f"select {due}".encode()).fetchone()
    assert row is not None
    session.execute(FORGED, [f"{FIRST} UNTIL {row[0]} UNTIL", 50])
    claim = "select msg_id from pgmq.receive('jobs', 10, %s)"
    session.execute(by_age)
    given_back = session.execute(claim, [-1]).fetchall()
    assert len(given_back) == 10
    # Half of this one go to the oldest, whatever the turn.
    again = session.execute(claim, [60]).fetchall()
    assert min(again) == min(given_back)


def test_look_that_was_slow_passes_by_nothing_that_fell_due(
    session: Connection,
) -> None:
    due = SENT - SETTLED
    for _ in range(200):  # each leaves as many dead entries
        session.execute("select count(*) from pgmq.read('jobs', 0, %s)", [due])
    session.execute("select pgmq.delete('jobs', array_agg(msg_id)) from pgmq.read('jobs', 0, %s)", [due])
    session.execute(SEND, [due])
    returned = session.execute("select msg_id from pgmq.read_grouped_rr('jobs', 0, 3)").fetchall()
    taken = [
        session.execute("select msg_id from pgmq.read_grouped_rr('jobs', 30, 1)").fetchone() for _ in returned
    ]
    assert taken == returned
    hint = session.execute(
        "select split_part(current_setting('spanmq.hint_' || queue_id), ' ', 4)"
        " from spanmq.queue where name = 'jobs'"
    ).fetchone()
    assert hint not in {("",), ("0",)}


@pytest.mark.parametrize(
    ("took", "seconds"), [("0.4 ms", 0.5), ("25 ms", 0.5), ("100 ms", 2.0), ("1 hour", 60.0)]
)
def test_next_look_from_the_left_comes_in_twenty_times_what_it_takes(
    connection: Connection, took: str, seconds: float
) -> None:
    """So who starves waits half a second, or 20 looks, and a minute at most."""
    clock = "select spanmq.hint_ms(clock_timestamp())"
    queries = (clock, f"select spanmq.hint_until('{took}')", clock)
    rows = [connection.execute(each.encode()).fetchone() for each in queries]
    before, until, after = (int(str(row[0])) / 1000 for row in rows if row is not None)
    assert before + seconds - 0.002 <= until <= after + seconds + 0.002
