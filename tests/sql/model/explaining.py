"""What explain() says of the messages of a queue, held against what receives of the same moment return."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.errors import LockNotAvailable
from tests.sql.race.sessions import Session

# How many messages of a long queue are looked at, at its ends.
FIRST, LAST = 40, 20


@dataclass(frozen=True, slots=True)
class Reason:
    message_id: int
    code: str
    until: datetime | None
    object: dict[str, Any]
    call: str | None

    @property
    def key(self) -> tuple[Any, ...]:
        """What must change when the reason ends: itself, or what is in the way, or why that is."""
        return self.message_id, self.code, self.object.get("message_id"), self.object.get("code")


@dataclass(frozen=True, slots=True)
class Choice:
    """What receives choose: explain() says only which messages may come.

    `shares_room`: which groups get what a limit of the queue leaves. `shares_alone`: of which group one is
    delivered alone, where it counts. `takes_any`: which of a group a receive of a few messages takes.
    `ends_count`: how many of a group come beside those that end.
    """

    shares_room: bool = False
    shares_alone: bool = False
    takes_any: bool = False
    ends_count: bool = False


def choice_in(policy: dict[str, Any]) -> Choice:
    by_rate = bool(policy.get("rate_limit_per_group") or policy.get("group_shares"))
    in_groups = bool(policy.get("ordered") or policy.get("max_in_flight_per_group") or by_rate)
    is_free = in_groups and not policy.get("ordered")
    has_room = bool(policy.get("max_in_flight") or policy.get("rate_limit"))
    is_limited = bool(by_rate or policy.get("max_in_flight_per_group"))
    return Choice(
        in_groups and has_room, is_free, is_free and by_rate, in_groups and not is_free and is_limited
    )


def explain(session: Session, queue: str, ids: Sequence[int]) -> list[Reason]:
    found = session.rows(
        "select m.id, e.code, e.until, coalesce(e.object, '{}'), e.call from unnest(%s::bigint[]) m (id)"
        " cross join lateral spanmq.explain(%s, m.id) e",
        list(ids),
        queue,
    )
    return [Reason(*row) for row in found]


@contextmanager
def undone(session: Session, queue_id: int, *, in_transaction: bool) -> Iterator[None]:
    """Roll back what is done, and what the claims took of the rate limit."""
    bucket = f"spanmq_core.rate_{queue_id}"
    tokens = None
    if session.value("select to_regclass(%s) is not null", bucket):
        tokens = session.rows(f"select last_value, is_called from {bucket}")[0]
    session.rows("savepoint proof" if in_transaction else "begin")
    try:
        yield
    finally:
        session.rows("rollback to savepoint proof" if in_transaction else "rollback")
        if tokens is not None:
            session.rows("select setval(%s, %s, %s)", bucket, *tokens)


def received(session: Session, queue: str, *, quantity: int = 1000, times: int = 1000) -> set[int]:
    """Receive until nothing comes, or so many times, and return the ids."""
    ids: set[int] = set()
    for _ in range(times):
        found = session.column("select msg_id from spanmq.receive(%s, %s, 3600)", queue, quantity)
        if not found:
            break
        assert not ids & set(found)
        ids |= set(found)
    return ids


def sample(ids: Sequence[int]) -> list[int]:
    """Return all of a few ids, and those at both ends of many."""
    ordered = sorted(ids)
    return ordered if len(ordered) <= FIRST + LAST else ordered[:FIRST] + ordered[-LAST:]


def check_explained(
    session: Session,
    queue: str,
    queue_id: int,
    ids: Sequence[int],
    *,
    in_transaction: bool,
    choice: Choice | None = None,
) -> None:
    """Check what explain() says of these messages, against receives of all of them, and of one at a time."""
    choice = choice or Choice()
    chosen = sample(ids)
    reasons = explain(session, queue, chosen)
    assert {each.message_id for each in reasons} == set(chosen), "a reason for each"
    with undone(session, queue_id, in_transaction=in_transaction):
        first = received(session, queue, quantity=1, times=5)
    with undone(session, queue_id, in_transaction=in_transaction):
        came = received(session, queue)
    assert choice.takes_any or bool(came) == bool(first), f"some, if some come: {came}"
    came, first = came & set(chosen), first & set(chosen)
    visible = [each for each in reasons if each.code == "visible"]
    said = {each.message_id for each in visible}
    alone = {each.message_id for each in visible if "alone" in each.object}
    wrong = [
        each for each in reasons if each.message_id in (came if choice.takes_any else came | first) - said
    ]
    assert not wrong, f"received, and not visible: {wrong}"
    assert bool(came) == bool(said) or len(chosen) < len(ids), f"some, if some are visible: {said}"
    ends = any(each.code == "ends" for each in reasons)
    if not (choice.shares_room or (choice.shares_alone and alone) or (choice.ends_count and ends)):
        # Which of the first ones that are delivered alone comes depends on how many messages a receive asks for.
        assert came - alone == said - alone, f"visible, and not received: {sorted(said - came)} of {reasons}"
        assert bool(came & alone) == bool(alone), f"one is delivered alone: {alone}"
    for reason in distinct(reasons):
        check_ends(session, queue, queue_id, reason, in_transaction=in_transaction)


def distinct(reasons: Sequence[Reason]) -> list[Reason]:
    """Return a reason of each code that names a time or a call."""
    by_code = {
        each.code: each
        for each in reversed(reasons)
        if (each.until or each.call) and each.code not in ("locked", "rate", "group_rate")
    }
    return list(by_code.values())


def check_ends(session: Session, queue: str, queue_id: int, reason: Reason, *, in_transaction: bool) -> None:
    """Check that the time, and the call, that a reason names ends it."""
    for way in ("until", "call"):
        if getattr(reason, way) is None:
            continue
        with undone(session, queue_id, in_transaction=in_transaction):
            if way == "call":
                session.rows("set local lock_timeout = '20ms'")
                try:
                    session.rows(str(reason.call))
                except LockNotAvailable:
                    # The other session has locked what is in the way.
                    continue
            else:
                for table in ("state", "later"):
                    # But for what the other session has locked: that time can't come here.
                    session.rows(
                        f"update spanmq_core.{table} set vt = clock_timestamp() where ctid = any (array("
                        f" select ctid from spanmq_core.{table}"
                        " where queue_id = %s and vt > clock_timestamp() and vt <= %s for update skip locked))",
                        queue_id,
                        reason.until,
                    )
            held = session.value(
                "select count(*) from spanmq_core.unsettled"
                " where queue_id = %s and vt > clock_timestamp() and vt <= %s",
                queue_id,
                reason.until,
            )
            after = explain(session, queue, [reason.message_id])
        if way == "until" and held:
            continue
        assert reason.key not in [each.key for each in after], f"{way} of {reason} leaves {after}"
