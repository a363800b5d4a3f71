"""Programs of calls on a queue: after every step it shows what the model says."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition
from psycopg.types.json import Jsonb
from tests.schemas import qualified
from tests.sql.model.explaining import check_explained
from tests.sql.model.invariants import broken_invariants
from tests.sql.model.model import Message, Model
from tests.sql.model.recording import Recorded, always, first_step, step
from tests.sql.race.sessions import Race, Session

HOUR = 3600
# Before the end of a block of 256 ids; before the end of the first segment.
STARTS = (0, 250, 16378)

quantities = st.one_of(st.integers(0, 8), st.just(50))
until = st.sampled_from((HOUR, HOUR, 0, -1))
groups = st.sampled_from((None, "a", "b", "c"))


class Program(Recorded):
    """One queue. Steps are transactions of their own, unless one was begun; another session looks on."""

    count = 0

    def __init__(self, dsn: str, kind: str, model: Model | None = None) -> None:
        super().__init__()
        Program.count += 1
        self.race = race_on(dsn, f"{kind}_{Program.count}", kind)
        self.session = open_session(self.race)
        self.model = model or Model()
        self.committed = self.model.copy()
        self.in_transaction = False
        self.sent = 0
        self.view = f"pgmq.q_{self.race.queue}"

    def teardown(self) -> None:
        self.session.rollback()
        self.race.main.value("select pgmq.drop_queue(%s)", self.race.queue)

    @precondition(lambda self: not self.in_transaction)
    @step()
    def begins(self) -> None:
        self.session.begin()
        self.in_transaction = True
        self.committed = self.model.copy()

    @precondition(lambda self: self.in_transaction)
    @step()
    def commits(self) -> None:
        self.session.commit()
        self.in_transaction = False
        self.committed = self.model.copy()

    @precondition(lambda self: self.in_transaction)
    @step(loses_connection=st.booleans())
    def rolls_back(self, loses_connection: bool) -> None:
        if loses_connection:
            self.session.drop()
            self.session = open_session(self.race)
        else:
            self.session.rollback()
        self.in_transaction = False
        self.model = self.committed.copy()

    @always()
    def shows_what_the_model_says(self) -> None:
        assert self.shown(self.session) == said(self.model)
        if self.in_transaction:
            assert self.shown(self.race.main) == said(self.committed), "others see what is committed"

    @always()
    def storage_is_sound(self) -> None:
        assert broken_invariants(self.race.main.connection) == []

    def call(self, call: str, *arguments: Any, columns: str = "*") -> list[tuple[Any, ...]]:
        return self.session.rows(
            f"select {columns} from {qualified(call)}", self.race.queue, *map(jsonb, arguments)
        )

    def marked(self) -> list[int]:
        """Return the messages that claims set aside, whose lost leases they still have."""
        return self.session.column(
            "select msg_id from spanmq_core.later"
            " where queue_id = %s and alone = 1 and lease_id > 0 and vt <= clock_timestamp()",
            self.race.queue_id,
        )

    def shown(self, session: Any) -> list[Any]:
        """Return what the view and the archive show, as `said` says it."""
        queued = session.rows(
            f"select msg_id, read_ct, vt <= clock_timestamp(), message, headers from {self.view}"
        )
        archived = session.rows(f"select msg_id, read_ct, message from pgmq.a_{self.race.queue}")
        dead = session.rows(
            "select msg_id, attempts, message, (select array_agg(f.outcome) from spanmq.failures(%s, msg_id) f)"
            " from spanmq.dead_letters_between(%s, 1, 9223372036854775807) where redriven_at is null",
            self.race.queue,
            self.race.queue,
        )
        return [sorted(rows, key=lambda row: row[0]) for rows in (queued, archived, dead)]


class QueueProgram(Program):
    """Every call there is, on a queue without a policy."""

    def __init__(self, dsn: str, kind: str) -> None:
        super().__init__(dsn, kind)
        self.leases: list[int] = [1]

    # What is done

    @first_step(start=st.sampled_from(STARTS))
    def starts_with_some_id(self, start: int) -> None:
        if start:
            self.race.main.value(f"select setval('pgmq.q_{self.race.queue}_msg_id_seq', %s)", start)
        self.race.main.rows(
            "update spanmq_core.queue set segment_size = 256 where queue_id = %s", self.race.queue_id
        )

    @step(group=groups, delayed=st.booleans())
    def sends(self, group: str | None, delayed: bool) -> None:
        bodies = self.new_bodies(1)
        ids = self.call(
            "send(%s, %s::jsonb, %s::jsonb, %s)", bodies[0], headers_of(group), HOUR if delayed else 0
        )
        self.model.send([message_id for (message_id,) in ids], bodies, [group], visible=not delayed)

    @step(
        n=st.sampled_from((1, 2, 7, 20, 21, 40, 300)),
        some=st.lists(groups, max_size=3),
        delayed=st.booleans(),
    )
    def sends_a_batch(self, n: int, some: list[str | None], delayed: bool) -> None:
        bodies = self.new_bodies(n)
        of_each = [some[i % len(some)] if some else None for i in range(n)]
        headers = [headers_of(each) for each in of_each] if some else None
        ids = self.call(
            "send_batch(%s, %s::jsonb[], %s::jsonb[], %s)", bodies, headers, HOUR if delayed else 0
        )
        self.model.send([message_id for (message_id,) in ids], bodies, of_each, visible=not delayed)

    @step(dedup_id=st.sampled_from(("x", "y")), until_started=st.booleans(), replaces=st.booleans())
    def sends_one_for_an_id(self, dedup_id: str, until_started: bool, replaces: bool) -> None:
        holder = self.model.holder(dedup_id, until_started=until_started)
        # One that a receiver holds would end later: tests/sql/test_dedup_holder.py.
        replaces = replaces and holder is not None and not self.model.is_leased(holder)
        bodies = self.new_bodies(1)
        call = "send_messages(%s, %s::jsonb[], dedup_ids => %s, dedup_until => %s, on_duplicate => %s)"
        until, mode = "started" if until_started else "settled", "replace" if replaces else "keep"
        [(message_id,)] = self.call(call, bodies, [dedup_id], until, mode)
        if holder is not None and not replaces:
            assert message_id == holder
            return
        if holder is not None:
            self.model.cancel([holder])
        self.model.send([message_id], bodies, [None], visible=True)
        self.model.take_id(message_id, dedup_id)

    @step(quantity=quantities, vt=until)
    def reads(self, quantity: int, vt: int) -> None:
        rows = self.call("read(%s, %s, %s)", vt, quantity, columns="msg_id, read_ct, message")
        met_expired = self.buries_expired()
        before = self.model.claim([row[0] for row in rows], quantity, exact=True, short=met_expired)
        assert rows == [(each.id, each.read_ct + 1, each.body) for each in before]
        self.model.lease([each.id for each in before], -1, visible=vt <= 0)

    @step(quantity=quantities, vt=until)
    def reads_what_is_even(self, quantity: int, vt: int) -> None:
        even = [
            message_id
            for message_id in self.model.deliverable()
            if self.model.messages[message_id].body["even"]
        ]
        rows = self.call("read(%s, %s, %s, '{\"even\": 1}')", vt, quantity)
        met_expired = self.buries_expired()
        ids = [row[0] for row in rows]
        before = self.model.claim(ids, quantity, exact=True, short=met_expired, wanted=even)
        self.model.lease([each.id for each in before], -1, visible=vt <= 0)

    @step(quantity=quantities, lease=until, slots=st.sampled_from((1, 1, 2, 3, 100)))
    def receives(self, quantity: int, lease: int, slots: int) -> None:
        rows = self.call(
            "receive(%s, %s, %s, %s)",
            quantity,
            lease,
            slots,
            columns="msg_id, attempt, message, lease_id, slot, group_key",
        )
        met_expired = self.buries_expired()
        ids = [row[0] for row in rows]
        before = self.model.claim(ids, quantity, exact=True, short=met_expired, isolates=True)
        assert [row[:3] for row in rows] == [(each.id, each.read_ct + 1, each.body) for each in before]
        assert [row[5] for row in rows] == [each.group for each in before]
        assert len({row[3] for row in rows}) <= 1, "one lease"
        in_slot = [[row[4] for row in rows].count(slot) for slot in range(1, slots + 1)]
        assert sum(in_slot) == len(rows)
        assert max(in_slot) <= -(-len(rows) // slots), "slots are shared out evenly"
        if rows:
            assert rows[0][3] not in self.leases, "a lease number comes once"
            self.leases.append(rows[0][3])
            self.model.lease([each.id for each in before], rows[0][3], visible=lease <= 0, records=True)
        self.model.mark(self.marked())

    @step(quantity=quantities)
    def pops(self, quantity: int) -> None:
        rows = self.call("pop(%s, %s)", quantity, columns="msg_id, read_ct, message")
        met_expired = self.buries_expired()
        before = self.model.claim([row[0] for row in rows], quantity, exact=True, short=met_expired)
        assert rows == [(each.id, each.read_ct, each.body) for each in before]
        self.model.remove([each.id for each in before])

    @step(mode=st.sampled_from(("fill", "rr", "head")), quantity=quantities, vt=until)
    def reads_groups(self, mode: str, quantity: int, vt: int) -> None:
        name = {"fill": "read_grouped", "rr": "read_grouped_rr", "head": "read_grouped_head"}[mode]
        rows = self.call(f"{name}(%s, %s, %s)", vt, quantity, columns="msg_id, read_ct")
        ids = [row[0] for row in rows]
        met_expired = self.buries_expired()
        self.model.claim_grouped(ids, quantity, mode=mode, short=met_expired)
        assert rows == [(message_id, self.model.messages[message_id].read_ct + 1) for message_id in ids]
        self.model.disown(ids)
        self.model.lease(ids, -1, visible=vt <= 0)

    @step(data=st.data(), archive=st.booleans(), by_view=st.booleans())
    def settles(self, data: st.DataObject, archive: bool, by_view: bool) -> None:
        ids = self.some_ids(data)
        if archive:
            found = self.call("archive(%s, %s::bigint[])", ids)
        elif by_view:
            found = self.session.rows(
                f"delete from {self.view} where msg_id = any (%s) returning msg_id", ids
            )
        else:
            found = self.call("delete(%s, %s::bigint[])", ids)
        assert sorted(message_id for (message_id,) in found) == self.model.remove(ids, archive=archive)

    @step(data=st.data(), archive=st.booleans())
    def settles_one(self, data: st.DataObject, archive: bool) -> None:
        message_id = data.draw(self.any_id())
        ((found,),) = self.call(
            "archive(%s, %s::bigint)" if archive else "delete(%s, %s::bigint)", message_id
        )
        assert found == bool(self.model.remove([message_id], archive=archive))

    @step(data=st.data())
    def acks(self, data: st.DataObject) -> None:
        lease = self.some_lease(data)
        ids = self.some_ids(data)
        assert self.call("ack(%s, %s, %s::bigint[])", lease, ids) == self.model.ack(lease, ids)

    @step(data=st.data(), hidden=st.booleans())
    def nacks(self, data: st.DataObject, hidden: bool) -> None:
        lease, ids = self.some_lease(data), self.some_ids(data)
        rows = self.call("nack(%s, %s, %s::bigint[], 'failed', 'UNKNOWN', %s)", lease, ids, HOUR * hidden)
        assert rows == self.model.nack(lease, ids, visible=not hidden)

    @step(data=st.data(), permanent=st.booleans())
    def rejects(self, data: st.DataObject, permanent: bool) -> None:
        lease, ids = self.some_lease(data), self.some_ids(data)
        call = "nack(%s, %s, %s::bigint[], 'no', 'BUSINESS')" if permanent else "reject(%s, %s, %s::bigint[])"
        assert self.call(call, lease, ids) == self.model.reject(lease, ids)

    @step(data=st.data())
    def releases(self, data: st.DataObject) -> None:
        lease, ids = self.some_lease(data), self.some_ids(data)
        assert self.call("release(%s, %s, %s::bigint[])", lease, ids) == self.model.release(lease, ids)

    @step(data=st.data())
    def extends(self, data: st.DataObject) -> None:
        lease, ids, shorten = self.some_lease(data), self.some_ids(data), data.draw(st.booleans())
        call = "extend(%s, %s, %s::bigint[], %s, %s)"
        assert self.call(call, lease, ids, HOUR, shorten) == self.model.extend(lease, ids)

    @step(data=st.data())
    def lets_some_expire(self, data: st.DataObject) -> None:
        ids = self.model.expire(self.some_ids(data))
        self.session.rows(
            "update spanmq_core.queue set uses_limits = true where queue_id = %s", self.race.queue_id
        )
        self.session.rows(
            "insert into spanmq_core.expiry (queue_id, msg_id, expires_at)"
            " select %s, id, '2020-01-01' from unnest(%s::bigint[]) id on conflict do nothing",
            self.race.queue_id,
            ids,
        )

    @step(data=st.data())
    def asks_how_it_is(self, data: st.DataObject) -> None:
        message_id = data.draw(st.one_of(self.any_id(), st.sampled_from([*self.model.dead, 999_999_999])))
        state = self.call("state(%s, %s)", message_id)[0][0]
        assert state == (self.model.state(message_id) or state)
        if message_id in self.model.messages:
            failures = self.call("failures(%s, %s)", message_id, columns="outcome")
            assert tuple(outcome for (outcome,) in failures) == self.model.messages[message_id].story

    @step(quantity=quantities, hidden=st.booleans())
    def redrives(self, quantity: int, hidden: bool) -> None:
        rows = self.call("redrive(%s, qty => %s, delay => %s)", quantity, HOUR if hidden else 0)
        assert [(row[0], row[-1]) for row in rows] == self.model.redrive(quantity, visible=not hidden)

    @step(quantity=st.sampled_from((1, 2)))
    def purges_dead_letters(self, quantity: int) -> None:
        ((purged,),) = self.call("purge_dead_letters(%s, qty => %s)", quantity)
        gone = sorted(self.model.dead)[:quantity]
        assert purged == len(gone)
        for message_id in gone:
            del self.model.dead[message_id]

    @step(data=st.data(), hidden=st.booleans(), by_view=st.booleans())
    def sets_vt(self, data: st.DataObject, hidden: bool, by_view: bool) -> None:
        ids = self.some_ids(data)
        if by_view:
            found = self.session.rows(
                f"update {self.view} set vt = now() + make_interval(secs => %s)"
                " where msg_id = any (%s) returning msg_id",
                HOUR if hidden else 0,
                ids,
            )
        else:
            found = self.call("set_vt(%s, %s::bigint[], %s)", ids, HOUR if hidden else 0)
        assert sorted(message_id for (message_id, *_) in found) == self.model.hide(ids, visible=not hidden)

    @step(data=st.data())
    def cancels(self, data: st.DataObject) -> None:
        # Those that a receiver holds end later: tests/sql/test_cancel.py.
        ids = [each for each in self.some_ids(data) if not self.model.is_leased(each)]
        assert self.call("cancel(%s, %s::bigint[])", ids) == self.model.cancel(ids)

    @step()
    def purges(self) -> None:
        ((purged,),) = self.call("purge_queue(%s)")
        assert purged == len(self.model.messages)
        self.model.messages.clear()

    @step()
    def is_maintained(self) -> None:
        for _ in range(20):
            if not maintain(self.session):
                break
        self.buries_expired()

    # What must hold

    @always()
    def peek_and_metrics_agree(self) -> None:
        rows = self.call("peek(%s, 1000000)")
        assert [row[0] for row in rows] == sorted(self.model.messages)
        ((length, visible),) = self.call("metrics(%s)", columns="queue_length, queue_visible_length")
        assert (length, visible) == (len(self.model.messages), len(self.model.visible()))

    @always()
    def what_keeps_each_message_is_explained(self) -> None:
        check_explained(
            self.session,
            self.race.queue,
            self.race.queue_id,
            [*self.model.messages, *self.model.dead, *self.model.archive],
            in_transaction=self.in_transaction,
        )

    @always()
    def dead_letters_are_counted(self) -> None:
        counted = self.call("count_dead_letters(%s)", columns="n")
        assert sum(n for (n,) in counted) == len(self.model.dead)

    # Means

    def buries_expired(self) -> bool:
        """Take over what a call dead-lettered; tell whether there was any."""
        return self.model.bury_expired(
            self.session.column(
                "select msg_id from spanmq.dead_letters_between(%s, 1, 9223372036854775807)"
                " where redriven_at is null",
                self.race.queue,
            )
        )

    def new_bodies(self, n: int) -> list[dict[str, int]]:
        self.sent += n
        return [{"number": i, "even": int(i % 2 == 0)} for i in range(self.sent - n, self.sent)]

    def any_id(self) -> st.SearchStrategy[int]:
        """Choose an message_id that is in the queue, mostly."""
        there = sorted(self.model.messages)[:40]
        return st.sampled_from([*there, *list(self.model.archive)[:3], 999_999_999])

    def some_lease(self, data: st.DataObject) -> int:
        """Choose one of the last leases by its place, which a replayed program finds again."""
        recent = self.leases[-4:]
        return recent[data.draw(st.integers(0, len(recent) - 1))]

    def some_ids(self, data: st.DataObject) -> list[int]:
        ids = data.draw(st.lists(self.any_id(), max_size=6))
        as_run: bool = data.draw(st.booleans())
        if ids and as_run:
            # A run, as whoever settles a batch has it.
            ids = [message_id for message_id in sorted(self.model.messages) if ids[0] <= message_id][
                : data.draw(st.sampled_from((2, 6, 30)))
            ]
        return ids


RACES: dict[str, Race] = {}


def race_on(dsn: str, queue: str, kind: str) -> Race:
    """Return a queue in a database, and the sessions that earlier programs had there."""
    if dsn in RACES:
        RACES[dsn].take(queue, kind)
    else:
        RACES[dsn] = Race(dsn, queue, kind)
    return RACES[dsn]


def open_session(race: Race) -> Session:
    """Open a session in which chance is the same each time.

    A program depends on what it got before. Hypothesis, which runs beginnings of programs again, takes it for
    a fault of ours if the same one goes on differently, as where another group's turn comes first.
    """
    session = race.open()
    session.rows("select setseed(0)")
    return session


def maintain(session: Session) -> list[tuple[Any, ...]]:
    """Maintain all queues; return what was done. What it draws for earlier programs' queues changes no later chance."""
    rows = session.rows("select * from spanmq.maintain()")
    session.rows("select setseed(0)")
    return rows


def said(model: Model) -> list[Any]:
    """Return what the model says the view and the archive show."""

    def columns(message: Message) -> tuple[Any, ...]:
        return (
            message.id,
            message.read_ct,
            message.visible,
            message.body,
            headers_of(message.group, message.dedup_id),
        )

    archived = [(message.id, message.read_ct, message.body) for _, message in sorted(model.archive.items())]
    dead = [(each.id, each.read_ct, each.body, list(each.story)) for _, each in sorted(model.dead.items())]
    return [[columns(message) for _, message in sorted(model.messages.items())], archived, dead]


def headers_of(group: str | None, dedup_id: str | None = None) -> dict[str, str] | None:
    given = {"x-pgmq-group": group, "x-spanmq-dedup-id": dedup_id}
    return {name: value for name, value in given.items() if value is not None} or None


def jsonb(argument: Any) -> Any:
    """Wrap dictionaries for the driver, also those in a list."""
    if isinstance(argument, dict):
        return Jsonb(argument)
    if isinstance(argument, list) and any(isinstance(each, dict) for each in argument):
        return [None if each is None else Jsonb(each) for each in argument]
    return argument
