"""Six messages that two actions are about: what must become of them."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from tests.sql.model.invariants import broken_invariants
from tests.sql.race.actions import MESSAGES, Action, Asks, Effect
from tests.sql.race.sessions import Later, Race, Session

STATES = ("ready", "leased", "expired")


# As expired, where one attempt is left: a claim marks all of them, and takes one.
SUSPECT = "suspect"


CANCELLED = """
    select distinct id from spanmq_core.failure f, unnest(%(ids)s::bigint[]) id
    where f.queue_id = %(queue)s and f.outcome = 'cancelled' and id <@ spanmq_core.ids_of(f)
"""


@dataclass(frozen=True, slots=True)
class Stage:
    """Six messages: new ones, or the first of them given back once, so that their rows are in `later`."""

    ids: list[int]
    lease: int | None

    @classmethod
    def make(cls, race: Race, state: str, *, given_back: int = 0) -> "Stage":
        race.main.rows("select pgmq.purge_queue(%s)", race.queue)
        ids = race.send(MESSAGES)
        if given_back:
            race.give_back(ids[:given_back])
        seconds = 3600 if state == "leased" else -1
        lease = None if state == "ready" else race.lease(MESSAGES, seconds, slots=3 if given_back else 1)
        limit = "2" if state == SUSPECT else "null"
        race.main.rows(f"select spanmq.set_policy(%s, '{{\"max_attempts\": {limit}}}')", race.queue)
        return cls(ids, lease)


@dataclass(slots=True)
class Done:
    """What became of an action: the ids it returned, or how many for a purge."""

    action: Action
    ids: list[int]
    count: int = 0

    @classmethod
    def of(cls, action: Action, returned: list[int]) -> "Done":
        if action.asks is Asks.ALL:
            return cls(action, [], returned[0])
        return cls(action, returned)

    def with_effect(self, *effects: Effect) -> set[int]:
        return set(self.ids) if self.action.effect in effects else set()


def start(session: Session, action: Action, race: Race, stage: Stage) -> Later:
    text, arguments = action.call(race.queue, stage.ids, stage.lease)
    return session.later(text, arguments)


def finish(action: Action, later: Later) -> Done:
    return Done.of(action, [row[0] for row in later.rows()])


def applies(action: Action, state: str) -> bool:
    return state != "ready" or action.asks is not Asks.IDS_OF_LEASE


def must_find(second: Action, first: Done, stage: Stage, state: str) -> set[int] | None:
    """Return what the second must have got; None if that depends on who was faster."""
    asked = set(second.asked(stage.ids)) - first.with_effect(Effect.SETTLED)
    if first.action.asks is Asks.ALL:
        asked = set()
    if second.asks is Asks.IDS:
        return asked
    if second.asks is Asks.IDS_OF_LEASE and first.action.in_order and first.ids:
        return set()
    if second.asks is Asks.IDS_OF_LEASE:
        # Whatever else was done to them: they have left the lease.
        return asked - (set(first.ids) - first.with_effect(Effect.HELD))
    if second.asks is Asks.IDS_OF_NO_LEASE and state == "ready":
        return asked - first.with_effect(Effect.TAKEN)
    if second.asks is Asks.ANY and first.with_effect(Effect.HELD) == set(stage.ids):
        return set()  # the lease is held again, or while that is open, nobody can tell
    return None


def problems_of(race: Race, stage: Stage, done: Sequence[Done]) -> list[str]:
    """Say what was lost, or had twice, given what each action returned (rolled back ones left out)."""
    problems = broken_invariants(race.main.connection)
    left = set(race.left())
    settled = [each.with_effect(Effect.SETTLED) for each in done]
    taken = [each.with_effect(Effect.TAKEN) for each in done]
    for a, b in itertools.combinations(settled, 2):
        if a & b:
            problems.append(f"settled twice: {a & b}")
    for a, b in itertools.combinations(taken, 2):
        if a & b:
            problems.append(f"delivered twice: {a & b}")
    # One that was cancelled while it was leased has ended when its lease did.
    cancelled = race.main.column(CANCELLED, {"queue": race.queue_id, "ids": stage.ids})
    all_settled = set().union(*settled, cancelled)
    purged = sum(each.count for each in done)
    if left & all_settled:
        problems.append(f"settled and still there: {left & all_settled}")
    if len(left) + len(all_settled) + purged != MESSAGES:
        problems.append(
            f"of {stage.ids} {sorted(all_settled)} were settled, {purged} purged, {sorted(left)} are left"
        )
    return problems
