"""Programs on queues with limits of attempts, expiries, and dead letters that block their group.

There is no model, because a claim may choose which messages of an expired lease it delivers together. Each call is
judged by the contents of the queue before and after it: no message becomes a dead letter for a lease that was lost
beside others, nor is one delivered beside others that must be alone.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from psycopg.types.json import Jsonb
from tests.schemas import qualified
from tests.sql.model.explaining import check_explained, choice_in
from tests.sql.model.invariants import broken_invariants
from tests.sql.model.queue_program import HOUR, headers_of, jsonb, maintain, open_session, race_on
from tests.sql.model.recording import Recorded, always, first_step, step
from tests.sql.queue import change_state
from tests.sql.race.sessions import Session

READS = ("read", "read_grouped", "read_grouped_rr", "read_grouped_head")
quantities = st.sampled_from((1, 2, 3, 5, 8, 20, 50))
LIMITS: tuple[dict[str, Any], ...] = (
    {},
    {"max_in_flight": 4},
    {"max_in_flight_per_group": 2},
    {"rate_limit": 1e-6, "rate_burst": 25, "max_in_flight": 10},
    {"rate_limit_per_group": 1e-6, "rate_burst_per_group": 6, "max_in_flight_per_group": 4},
    {"group_shares": {"a": 3}, "max_in_flight_per_group": 3, "max_in_flight": 8},
)
# Places among what there is, which a replayed program finds again.
places = st.lists(st.integers(0, 49), min_size=1, max_size=6)


@dataclass(slots=True)
class Sent:
    group: str | None
    max_attempts: int | None
    may_expire: bool
    has_expired: bool = False


class LimitsProgram(Recorded):
    """A queue and two sessions: one commits at once; while the other has a transaction, the first only claims."""

    count = 0

    def __init__(self, dsn: str, kind: str) -> None:
        super().__init__()
        LimitsProgram.count += 1
        self.race = race_on(dsn, f"{kind}_limits_{LimitsProgram.count}", kind)
        self.session, self.other = open_session(self.race), open_session(self.race)
        for session in (self.session, self.other):
            # Claims of groups begin at a random one: a program that failed is to fail again.
            session.rows("select setseed(0.5)")
        self.is_open = False
        self.sent: dict[int, Sent] = {}
        self.gone: set[int] = set()
        self.going: set[int] = set()  # gone if the other session commits
        self.leases: list[int] = []
        self.policy: dict[str, Any] = {}

    def teardown(self) -> None:
        self.other_session_ends.function(self, commits=False)
        self.race.main.value("select pgmq.drop_queue(%s)", self.race.queue)

    # What is done

    @first_step(
        start=st.sampled_from((0, 250)),
        max_attempts=st.sampled_from((None, 0, 1, 2, 3, 4)),
        ordered=st.booleans(),
        blocks=st.booleans(),
        drops=st.booleans(),
        limits=st.sampled_from(({}, {}, *LIMITS)),
    )
    def begins(
        self,
        start: int,
        max_attempts: int | None,
        ordered: bool,
        blocks: bool,
        drops: bool,
        limits: dict[str, Any],
    ) -> None:
        if start:
            self.race.main.value(f"select setval('pgmq.q_{self.race.queue}_msg_id_seq', %s)", start)
        self.policy = {
            "max_attempts": max_attempts,
            "ordered": ordered,
            "dead_letter_blocks_group": blocks,
            "drop_expired": drops,
            **limits,
        }
        self.call("set_policy(%s, %s)", self.policy)

    @step(
        n=st.sampled_from((1, 2, 6, 30)),
        groups=st.lists(st.sampled_from(("a", "a", "b", "c", None)), min_size=1, max_size=4),
        own=st.sampled_from((None, None, 1, 2, 30)),
        expires=st.booleans(),
        priority=st.sampled_from((0, 0, 3, 9)),
    )
    def sends(self, n: int, groups: list[str | None], own: int | None, expires: bool, priority: int) -> None:
        of_each = [groups[i % len(groups)] for i in range(n)]
        rows = self.call(
            "send_messages(%s, %s::jsonb[], %s::jsonb[], max_attempts => %s, expires_in => %s, priority => %s)",
            [{}] * n,
            [None if group is None else Jsonb(headers_of(group)) for group in of_each],
            own,
            HOUR if expires else None,
            priority,
        )
        for (message_id,), group in zip(rows, of_each, strict=True):
            self.sent[message_id] = Sent(group, own, expires)

    @step(quantity=quantities, lease=st.sampled_from((HOUR, -1)), in_other=st.booleans())
    def receives(self, quantity: int, lease: int, in_other: bool) -> None:
        session = self.chosen(in_other)
        with self.judged(session):
            call = "receive(%s, %s, %s)", quantity, lease
            rows = self.call(*call, columns="msg_id, attempt, lease_id", session=session)
        self.leases += sorted({row[2] for row in rows})
        self.judge_claim(session, rows, quantity, grouped=False)

    @step(
        quantity=quantities,
        vt=st.sampled_from((HOUR, -1)),
        how=st.sampled_from(READS),
        in_other=st.booleans(),
    )
    def reads(self, quantity: int, vt: int, how: str, in_other: bool) -> None:
        session = self.chosen(in_other)
        with self.judged(session):
            rows = self.call(f"{how}(%s, %s, %s)", vt, quantity, columns="msg_id, read_ct", session=session)
        self.judge_claim(session, rows, quantity, grouped=how != "read")

    @step(lease=st.sampled_from((HOUR, -1)), begins=st.booleans(), in_other=st.booleans())
    def receives_as_a_worker(self, lease: int, begins: bool, in_other: bool) -> None:
        session = self.chosen(in_other)
        columns = "msg_id, attempt, lease_id, slot"
        with self.judged(session):
            rows = session.rows(
                f"select {columns} from spanmq.receive(%s, 5, %s, alone => true)", self.race.queue, lease
            )
        self.leases += sorted({row[2] for row in rows})
        self.judge_claim(session, rows, 5, grouped=False)
        if begins and rows and rows[0][3] == 0:
            begun = self.call("begin_alone(%s, %s)", rows[0][2], columns=columns, session=session)
            assert [row[:3] for row in begun] == ([rows[0][:3]] if lease == HOUR else [])

    @step(quantity=quantities, in_other=st.booleans())
    def pops(self, quantity: int, in_other: bool) -> None:
        session = self.chosen(in_other)
        with self.judged(session) as gone:
            rows = self.call("pop(%s, %s)", quantity, columns="msg_id, read_ct + 1", session=session)
            gone |= {row[0] for row in rows}
        self.judge_claim(session, rows, quantity, grouped=False)

    @step(
        pick=st.integers(0, 3),
        some=st.none() | places,
        call=st.sampled_from(("ack", "nack", "reject", "release", "extend", "lapse")),
        in_other=st.booleans(),
    )
    def settles(self, pick: int, some: list[int] | None, call: str, in_other: bool) -> None:
        if not self.leases or (self.is_open and not in_other):
            return
        session = self.chosen(in_other)
        lease = self.leases[-4:][pick % len(self.leases[-4:])]
        held = session.column(
            "select msg_id from spanmq_core.unsettled where lease_id = %s order by 1", lease
        )
        ids = chosen_of(held, some) if some else held
        with self.judged(session) as gone:
            if call == "lapse":
                change_state(session.connection, "vt = clock_timestamp()", f"lease_id = {lease}")
            else:
                more = {"nack": ", 'failed', 'UNKNOWN', 0", "extend": f", {HOUR}"}.get(call, "")
                rows = self.call(f"{call}(%s, %s, %s::bigint[]{more})", lease, ids, session=session)
                assert "stale" not in dict(rows).values()
                gone |= {message_id for message_id, outcome in rows if outcome == "acked"}

    @step(commits=st.booleans())
    def other_session_ends(self, commits: bool) -> None:
        if self.is_open and commits:
            self.other.commit()
            self.gone |= self.going
        elif self.is_open:
            self.other.rollback()
        self.is_open, self.going = False, set()

    @step(some=places)
    def lets_some_expire(self, some: list[int]) -> None:
        there = [each for each in self.queued(self.session) if self.sent[each].may_expire]
        if there and not self.is_open:
            for each in chosen_of(there, some):
                self.sent[each].has_expired = True
                self.session.rows(
                    "update spanmq_core.expiry set expires_at = '2020-01-01' where msg_id = %s", each
                )

    @step(some=places, hidden=st.booleans())
    def sets_vt(self, some: list[int], hidden: bool) -> None:
        there = self.queued(self.session)
        if there and not self.is_open:
            self.call("set_vt(%s, %s::bigint[], %s)", chosen_of(there, some), HOUR * hidden)

    @step(quantity=st.sampled_from((1, 50)))
    def redrives(self, quantity: int) -> None:
        if not self.is_open:
            for message_id, *_ in self.call("redrive(%s, qty => %s, delay => 0)", quantity):
                self.sent[message_id].may_expire = self.sent[message_id].has_expired = False

    @step()
    def is_maintained(self) -> None:
        with self.judged(self.session):
            maintain(self.session)

    # What must hold

    @always()
    def storage_is_sound(self) -> None:
        assert broken_invariants(self.race.main.connection) == []

    @always()
    def nothing_is_lost(self) -> None:
        queued, dead = set(self.queued(self.race.main)), set(self.dead(self.race.main))
        assert not queued & dead
        assert queued | dead == self.sent.keys() - self.gone

    @always()
    def what_keeps_each_message_is_explained(self) -> None:
        check_explained(
            self.session,
            self.race.queue,
            self.race.queue_id,
            self.queued(self.session),
            in_transaction=False,
            choice=choice_in(self.policy),
        )

    # Means

    def call(self, call: str, *arguments: Any, columns: str = "*", session: Session | None = None) -> Any:
        query = f"select {columns} from {qualified(call)}"
        return (session or self.session).rows(query, self.race.queue, *map(jsonb, arguments))

    def chosen(self, in_other: bool) -> Session:
        if in_other and not self.is_open:
            self.other.begin()
            self.is_open = True
        return self.other if in_other else self.session

    def judge_claim(
        self, session: Session, rows: list[tuple[int, ...]], quantity: int, *, grouped: bool
    ) -> None:
        ids = [row[0] for row in rows]
        assert len(ids) == len(set(ids)) <= quantity
        left = [each for each in self.queued(session) if each not in ids]
        dead = (
            self.dead(session) if self.policy["ordered"] and self.policy["dead_letter_blocks_group"] else []
        )
        state = self.leases_of(session)
        assert len(ids) == 1 or not any(state[each][1] for each in ids if each in state), "alone is alone"
        for message_id, attempt, *_ in rows:
            sent = self.sent[message_id]
            most = sent.max_attempts or self.policy["max_attempts"]
            if message_id in state and most:
                assert attempt - state[message_id][0] <= most, "an attempt was left, without the lost leases"
            assert not sent.has_expired
            if grouped or self.policy["ordered"]:
                assert sent.group not in self.groups_before(message_id, left), "it is the first of its group"
            assert not sent.group or sent.group not in self.groups_before(message_id, dead), (
                "its group is not blocked"
            )

    def groups_before(self, message_id: int, ids: list[int]) -> set[str | None]:
        return {self.sent[each].group for each in ids if each < message_id}

    @contextmanager
    def judged(self, session: Session) -> Iterator[set[int]]:
        """Check what leaves the queue: dead letters, expired messages that the policy drops, and the set."""
        gone: set[int] = set()
        before = self.queued(session)
        state = self.leases_of(session)
        yield gone
        left = self.queued(session)
        lost = self.dead(session, "LeaseExpired")
        for message_id in set(before) & set(lost):
            _, alone, attempts = state[message_id]
            assert alone == 2 or attempts == 1, "its lease was lost while it was alone, or was its only one"
        dropped = set(before) - set(left) - set(self.dead(session)) - gone
        assert all(self.sent[each].has_expired for each in dropped)
        assert self.policy["drop_expired"] or not dropped
        (self.going if session is self.other else self.gone).update(gone | dropped)

    def queued(self, session: Session) -> list[int]:
        return session.column(f"select msg_id from pgmq.q_{self.race.queue} order by 1")

    def leases_of(self, session: Session) -> dict[int, tuple[int, int, int]]:
        """Return the lost leases, the kind of delivery and the attempts of each message that was delivered."""
        rows = session.rows(
            "select msg_id, lost, alone, attempts from spanmq_core.unsettled where queue_id = %s",
            self.race.queue_id,
        )
        return {message_id: (lost, alone, attempts) for message_id, lost, alone, attempts in rows}

    def dead(self, session: Session, error_class: str | None = None) -> list[int]:
        return session.column(
            "select msg_id from spanmq_core.dead_letter where queue_id = %s and redriven_at is null"
            " and (%s::text is null or error_class = %s)",
            self.race.queue_id,
            error_class,
            error_class,
        )


def chosen_of(there: list[int], some: list[int]) -> list[int]:
    """Return those that stand at some places."""
    return sorted({there[place % len(there)] for place in some}) if there else []
