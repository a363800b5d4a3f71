"""Programs on queues whose policies order or limit: never more, never out of order, nothing lost."""

from hypothesis import strategies as st
from hypothesis.stateful import precondition
from psycopg.types.json import Jsonb
from tests.sql.model.explaining import check_explained, choice_in
from tests.sql.model.governed import ENDLESS, Governed, Policy, group_of
from tests.sql.model.queue_program import Program, headers_of, maintain
from tests.sql.model.recording import always, first_step, step

HOUR = 3600
POLICIES = {
    "ordered": Policy(ordered=True),
    "ordered, few in flight": Policy(ordered=True, in_flight=5),
    "ordered, few of a group": Policy(ordered=True, in_flight_per_group=2),
    "few in flight": Policy(in_flight=4),
    "few of a group": Policy(in_flight_per_group=3),
    "few tokens of a group": Policy(group_burst=6, in_flight_per_group=4),
    "ordered, few tokens of a group": Policy(ordered=True, group_burst=6),
    "shares": Policy(shares=True, in_flight_per_group=4),
    "few at all": Policy(burst=25, in_flight=10),
    "by priority": Policy(by_priority=True),
    "by priority, few in flight": Policy(by_priority=True, in_flight=4),
}
groups = st.sampled_from(("a", "a", "b", "c", None))


class PolicyProgram(Program):
    """One queue with a policy, filled well, so that most steps meet something."""

    model: Governed

    def __init__(self, dsn: str, kind: str, policy: Policy) -> None:
        super().__init__(dsn, kind, Governed(policy=policy))
        # A transaction that rolls back does not give its tokens back.
        self.tokens = policy.burst if policy.burst is not None else ENDLESS

    @first_step(start=st.sampled_from((0, 250)), some=st.lists(groups, min_size=1, max_size=4))
    def begins_with_some(self, start: int, some: list[str | None]) -> None:
        if start:
            self.race.main.value(f"select setval('pgmq.q_{self.race.queue}_msg_id_seq', %s)", start)
        policy = self.model.policy
        self.policy = {
            "ordered": policy.ordered,
            "max_in_flight": policy.in_flight,
            "max_in_flight_per_group": policy.in_flight_per_group,
            "rate_limit": None if policy.burst is None else 1e-6,
            "rate_burst": policy.burst,
            "rate_limit_per_group": None if policy.group_burst is None else 1e-6,
            "rate_burst_per_group": policy.group_burst,
            "group_shares": {"a": 3} if policy.shares else None,
            "priority_aging": 1e9,
        }
        self.call("set_policy(%s, %s)", self.policy)
        self.put(12, some, 0, 0)
        self.committed = self.model.copy()

    @step(
        n=st.sampled_from((1, 2, 6, 30)),
        some=st.lists(groups, min_size=1, max_size=4),
        delay=st.sampled_from((0, 0, 0, HOUR)),
        priority=st.sampled_from((0, 3, 3, 9)),
    )
    def sends(self, n: int, some: list[str | None], delay: int, priority: int) -> None:
        self.put(n, some, delay, priority)

    @step(quantity=st.sampled_from((0, 1, 1, 2, 3, 5, 8, 20)), lease=st.sampled_from((HOUR, HOUR, HOUR, -1)))
    def receives(self, quantity: int, lease: int) -> None:
        rows = self.call(
            "receive(%s, %s, %s)", quantity, lease, columns="msg_id, lease_id, attempt, group_key, message"
        )
        ids = [row[0] for row in rows]
        self.model.judge(ids, quantity, self.tokens)
        messages = [self.model.messages[each] for each in ids]
        assert [row[2:] for row in rows] == [(each.read_ct + 1, each.group, each.body) for each in messages]
        if rows:
            if self.model.policy.ordered:
                self.model.disown(ids)
            self.model.lease(ids, rows[0][1], visible=lease <= 0, records=True)
        self.model.mark(self.marked())
        self.tokens -= len(ids)
        self.model.drawn.update(group_of(each) for each in messages)

    @precondition(lambda self: self.leases())
    @step(data=st.data(), call=st.sampled_from(("ack", "ack", "nack", "wait", "reject", "release")))
    def settles(self, data: st.DataObject, call: str) -> None:
        leases = self.leases()
        lease = leases[data.draw(st.integers(0, len(leases) - 1))]
        held = self.model.held(lease, list(self.model.messages))
        ids = held if data.draw(st.booleans()) else data.draw(st.lists(st.sampled_from(held), min_size=1))
        match call:
            case "ack" | "reject" | "release":
                rows = self.call(f"{call}(%s, %s, %s::bigint[])", lease, ids)
                expected = getattr(self.model, call)(lease, ids)
            case _:
                wait = HOUR if call == "wait" else 0
                rows = self.call("nack(%s, %s, %s::bigint[], 'failed', 'UNKNOWN', %s)", lease, ids, wait)
                expected = self.model.nack(lease, ids, visible=not wait)
        if call != "ack":
            self.model.release_behind(ids)
        assert rows == expected

    @precondition(lambda self: self.model.messages)
    @step(data=st.data(), hidden=st.booleans())
    def sets_vt(self, data: st.DataObject, hidden: bool) -> None:
        # Mostly what somebody waits for.
        there = [each.id for each in self.model.messages.values() if not each.visible]
        ids = data.draw(st.lists(st.sampled_from(there or sorted(self.model.messages)), max_size=4))
        rows = self.call("set_vt(%s, %s::bigint[], %s)", ids, HOUR if hidden else 0, columns="msg_id")
        assert sorted(each for (each,) in rows) == self.model.hide(ids, visible=not hidden)

    @precondition(lambda self: self.model.dead)
    @step(quantity=st.sampled_from((1, 50)), hidden=st.booleans())
    def redrives(self, quantity: int, hidden: bool) -> None:
        rows = self.call("redrive(%s, qty => %s, delay => %s)", quantity, HOUR if hidden else 0)
        assert [(row[0], row[-1]) for row in rows] == self.model.redrive(quantity, visible=not hidden)

    @step()
    def is_paused_or_resumed(self) -> None:
        self.model.paused = not self.model.paused
        self.call("pause(%s)" if self.model.paused else "resume(%s)")

    @step()
    def is_maintained(self) -> None:
        maintain(self.session)

    @always()
    def what_keeps_each_message_is_explained(self) -> None:
        check_explained(
            self.session,
            self.race.queue,
            self.race.queue_id,
            [*self.model.messages],
            in_transaction=self.in_transaction,
            choice=choice_in(self.policy),
        )

    @always()
    def failures_are_told(self) -> None:
        told = self.session.rows(
            "select v.msg_id, array_agg(f.outcome order by f.failed_at, f.attempt)"
            f" from {self.view} v join spanmq.failures_between(%s, 1, 9223372036854775807) f on f.msg_id = v.msg_id"
            " group by v.msg_id",
            self.race.queue,
        )
        assert dict(told) == {
            each.id: list(each.story) for each in self.model.messages.values() if each.story
        }

    def put(self, n: int, some: list[str | None], delay: int, priority: int) -> None:
        bodies = [{"number": self.sent + i} for i in range(n)]
        self.sent += n
        of_each = [some[i % len(some)] for i in range(n)]
        given = priority if self.model.policy.by_priority else 0
        rows = self.call(
            "send_messages(%s, %s::jsonb[], %s::jsonb[], %s, priority => %s)",
            bodies,
            [None if each is None else Jsonb(headers_of(each)) for each in of_each],
            delay,
            given,
        )
        ids = [each for (each,) in rows]
        self.model.send(ids, bodies, of_each, visible=not delay)
        self.model.priorities.update(dict.fromkeys(ids, given))

    def leases(self) -> list[int]:
        """Return the leases that hold something."""
        return sorted({each.lease for each in self.model.messages.values() if each.lease})
