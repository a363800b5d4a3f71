"""What no history may show, whatever was killed while it was written.

A call takes effect once between its beginning and its end, at a time that nobody knows. A rule is broken only if it is
for every choice of these times; so a broken rule is a fault, and never bad luck. The work grows with the length of the
history alone, but for sorting.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from operator import itemgetter

from lab.bench.history.calls import NEVER, Call

# Clocks of the server and of the clients may differ by a thousandth.
LEASE_SHARE_NS = 0.999e9
SHOWN_MAX = 20


@dataclass(slots=True)
class Message:
    """What happened to a message; calls in the order in which they began."""

    id: int
    # Whether a call with an answer sent it, and when it was surely there.
    is_sent: bool = False
    sent_by: int = NEVER
    group: str | None = None
    deliveries: list[Call] = field(default_factory=list)
    leases: list[int | None] = field(default_factory=list)
    # Calls that settled it, and calls without an answer that may have; from when on it may be gone, and surely is.
    settled: list[Call] = field(default_factory=list)
    perhaps_settled: list[Call] = field(default_factory=list)
    there_until: int = NEVER
    gone_by: int = NEVER
    # Calls that may have ended a lease.
    ends: list[Call] = field(default_factory=list)


@dataclass(slots=True)
class History:
    """The calls of a history by what they are about."""

    messages: dict[int, Message] = field(default_factory=dict)
    twice: list[int] = field(default_factory=list)
    sends: list[Call] = field(default_factory=list)
    counts: list[Call] = field(default_factory=list)
    extends: dict[int, list[Call]] = field(default_factory=lambda: defaultdict(list))
    # Messages of a stream's batch, by its lease.
    claimed: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    # Messages that a lake has surely, and when it may have had them first.
    exported: dict[int, int] = field(default_factory=dict)
    # Messages of sends, receives, and receives that settled at once, that had no answer.
    sends_unanswered: int = 0
    receives_unanswered: int = 0
    takes_unanswered: int = 0
    look: Call | None = None
    max_attempts: int = 0

    def message(self, message_id: int) -> Message:
        """Return what happened to a message; the first time, nothing."""
        message = self.messages.get(message_id)
        if message is None:
            message = self.messages[message_id] = Message(message_id)
        return message

    def held_until(self, message: Message, call: Call, lease: int | None) -> float:
        """Return the time until which a delivery surely holds its messages, unless a call ends it."""
        if call.verb in ("take", "claim"):
            return NEVER
        until = call.began + call.seconds * LEASE_SHARE_NS
        for extend in self.extends.get(lease, ()) if lease is not None else ():
            if message.id in extend.ids:
                then = extend.began + extend.seconds * LEASE_SHARE_NS
                until = then if message.id in (extend.got or ()) else min(until, then)
        return until

    def holds(self, message: Message, delivery: Call, lease: int | None, other: Call) -> bool:
        """Return whether a delivery that came first surely held its message at another call."""
        if other.ended >= self.held_until(message, delivery, lease):
            return False
        return all(
            end.began > other.ended or end.ended < delivery.began or end is delivery or end is other
            for end in reversed(message.ends)
        )


def _add_send(history: History, call: Call) -> None:
    history.sends.append(call)
    if call.ended == NEVER:
        history.sends_unanswered += len(call.groups)
        return
    for message_id, group in zip(call.got, call.groups, strict=True):
        one = history.message(message_id)
        if one.is_sent:
            history.twice.append(message_id)
        one.is_sent, one.sent_by, one.group = True, call.ended, group


def _add_receive(history: History, call: Call) -> None:
    if call.ended == NEVER:
        history.receives_unanswered += 1
        return
    for message_id, lease in call.got:
        one = history.message(message_id)
        one.deliveries.append(call)
        one.leases.append(lease)


def _add_settle(history: History, call: Call) -> None:
    for message_id in call.ids if call.ended == NEVER else call.got:
        one = history.message(message_id)
        one.there_until = min(one.there_until, call.began)
        one.ends.append(call)
        if call.ended == NEVER:
            one.perhaps_settled.append(call)
        else:
            one.settled.append(call)
            one.gone_by = min(one.gone_by, call.ended)


def _add_take(history: History, call: Call) -> None:
    if call.ended == NEVER:
        history.takes_unanswered += 1
        return
    for message_id in call.got:
        one = history.message(message_id)
        one.deliveries.append(call)
        one.leases.append(None)
    _add_settle(history, call)


def _add_claim(history: History, call: Call) -> None:
    _add_receive(history, call)
    for message_id, lease in call.got or ():
        history.claimed[lease].add(message_id)


def _add_confirm(history: History, call: Call) -> None:
    for message_id in history.claimed.get(call.lease or 0, ()):
        one = history.message(message_id)
        one.there_until = min(one.there_until, call.began)
        one.ends.append(call)
        if call.ended == NEVER:
            one.perhaps_settled.append(call)
        elif not any(_is_same_batch(call, call.lease, other, other.lease) for other in one.settled):
            one.settled.append(call)
            one.gone_by = min(one.gone_by, call.ended)


def _is_same_batch(call: Call, lease: int | None, other: Call, other_lease: int | None) -> bool:
    """Return whether two calls of streams are about one batch, which may be claimed and confirmed again."""
    return call.verb == other.verb and call.verb in ("claim", "confirm") and lease == other_lease


def _add_export(history: History, call: Call) -> None:
    for message_id in call.ids if call.ended != NEVER else ():
        history.exported.setdefault(message_id, call.ended)


def _add_free(history: History, call: Call) -> None:
    for message_id in call.ids if call.ended == NEVER else call.got:
        history.message(message_id).ends.append(call)


def _add_extend(history: History, call: Call) -> None:
    if call.lease is not None:
        history.extends[call.lease].append(call)


def _add_count(history: History, call: Call) -> None:
    if call.ended != NEVER:
        history.counts.append(call)


def _add_look(history: History, call: Call) -> None:
    history.look = call


VERBS: dict[str, Callable[[History, Call], None]] = {
    "send": _add_send,
    "receive": _add_receive,
    "take": _add_take,
    "settle": _add_settle,
    "claim": _add_claim,
    "confirm": _add_confirm,
    "export": _add_export,
    "free": _add_free,
    "extend": _add_extend,
    "count": _add_count,
    "look": _add_look,
}


def _invented(history: History) -> Iterator[str]:
    """Yield messages that nobody sent, and ids that were given twice."""
    for message_id in history.twice:
        yield f"{message_id} was sent twice"
    unknown = {one.id for one in history.messages.values() if not one.is_sent}
    if history.look is not None:
        unknown |= {message_id for message_id in _seen(history.look) if message_id not in history.messages}
    if len(unknown) > history.sends_unanswered:
        yield f"{sorted(unknown)[:SHOWN_MAX]} and no more than {history.sends_unanswered} sends had no answer"


def _seen(look: Call) -> Iterator[int]:
    yield from look.got["left"]
    yield from (message_id for message_id, _ in look.got["dead"])
    yield from look.got.get("archived") or ()


def _lost(history: History) -> Iterator[str]:
    """Yield messages that were sent and are neither settled nor there, unless a call may have taken any."""
    if history.look is None or history.takes_unanswered:
        return
    seen = set(_seen(history.look))
    for one in history.messages.values():
        if one.is_sent and not one.settled and not one.perhaps_settled and one.id not in seen:
            yield f"{one.id} is neither settled nor there"


def _kept(history: History) -> Iterator[str]:
    """Yield settled messages that are elsewhere than where that puts them."""
    if history.look is None:
        return
    left, dead = set(history.look.got["left"]), {message_id for message_id, _ in history.look.got["dead"]}
    places = {"left": left, "dead": dead}
    if (archived := history.look.got.get("archived")) is not None:
        places["archived"] = set(archived)
    for one in history.messages.values():
        if one.settled:
            into = one.settled[0].into
            for name, ids in places.items():
                # Retention may have deleted what a lake has.
                if name == "archived" and one.id in history.exported:
                    continue
                if (one.id in ids) != (name == into):
                    yield f"{one.id} was settled as {into} and is {'' if one.id in ids else 'not '}{name}"


def _settled_twice(history: History) -> Iterator[str]:
    """Yield messages that were settled more than once."""
    for one in history.messages.values():
        if len(one.settled) > 1:
            yield f"{one.id}, {len(one.settled)} times"


def _delivered_again(history: History) -> Iterator[str]:
    """Yield messages that were delivered after they were settled."""
    for one in history.messages.values():
        if one.deliveries and one.deliveries[-1].began > one.gone_by:
            yield f"{one.id}, {(one.deliveries[-1].began - one.gone_by) / 1e9:.6f} s after it"


def _leases_overlap(history: History) -> Iterator[str]:
    """Yield messages that had two leases at a time."""
    for one in history.messages.values():
        if len(one.deliveries) < 2:
            continue
        both = list(zip(one.deliveries, one.leases, strict=True))
        for (earlier, lease), (later, newer) in pairwise(both):
            if _is_same_batch(earlier, lease, later, newer):
                continue
            if history.holds(one, earlier, lease, later) and (
                later.began > earlier.ended or history.holds(one, later, newer, earlier)
            ):
                yield f"{one.id}: lease {newer} while {lease} held it"


def _old_lease(history: History) -> Iterator[str]:
    """Yield messages that were settled by a lease that another one had followed."""
    for one in history.messages.values():
        for call in one.settled if len(one.deliveries) > 1 else ():
            own = [
                delivery
                for delivery, lease in zip(one.deliveries, one.leases, strict=True)
                if lease is not None and lease == call.lease
            ]
            if own and any(
                delivery.began > own[-1].ended and delivery.ended < call.began for delivery in one.deliveries
            ):
                yield f"{one.id} by lease {call.lease}"


def _groups(history: History) -> Iterator[list[Message]]:
    groups: dict[str, list[Message]] = defaultdict(list)
    for one in history.messages.values():
        if one.group is not None:
            groups[one.group].append(one)
    for members in groups.values():
        members.sort(key=lambda one: one.id)
        yield members


def _out_of_order(history: History) -> Iterator[str]:
    """Yield messages that were delivered before a lower one of their group, which was not sent late, was settled."""
    died = {message_id for message_id, _ in history.look.got["dead"]} if history.look else set()
    for members in _groups(history):
        # A message that died by its attempts has left by its last delivery or later, and nobody says when.
        there_until = [
            one.deliveries[-1].began
            if one.id in died and not one.settled and one.deliveries
            else one.there_until
            for one in members
        ]
        deliveries = sorted(
            ((call.ended, one.id, call) for one in members for call in one.deliveries), key=itemgetter(0)
        )
        head = 0
        for _, message_id, call in deliveries:
            while head < len(members) and there_until[head] <= call.ended:
                head += 1
            # Between the head and this message are those that were sent late, or came with it, only.
            for place in range(head, len(members)):
                lower = members[place]
                if lower.id >= message_id:
                    break
                if (
                    there_until[place] > call.ended
                    and lower.sent_by < call.began
                    and call not in lower.deliveries
                ):
                    yield f"{message_id} of group {lower.group} before {lower.id}"
                    break


def _in_flight_together(history: History) -> Iterator[str]:
    """Yield messages that were delivered while another call held messages of their group."""
    for members in _groups(history):
        deliveries = sorted(
            (
                (call.began, call, one, lease)
                for one in members
                for call, lease in zip(one.deliveries, one.leases, strict=True)
            ),
            key=itemgetter(0),
        )
        before: list[tuple[Call, Message, int | None]] = []
        own: list[tuple[Call, Message, int | None]] = []
        for _, call, one, lease in deliveries:
            if own and own[-1][0] is not call:
                before, own = own, []
            own.append((call, one, lease))
            for earlier, other, held in before:
                if (
                    other is not one
                    and not _is_same_batch(earlier, held, call, lease)
                    and history.holds(other, earlier, held, call)
                    and (call.began > earlier.ended or history.holds(one, call, lease, earlier))
                ):
                    yield f"{one.id} of group {one.group} while {other.id} was in flight"


def _without_cause(history: History) -> Iterator[str]:
    """Yield dead letters that no call gave up with their error, and that were not delivered as often as may be."""
    for message_id, error in history.look.got["dead"] if history.look else ():
        one = history.message(message_id)
        rejected = any(
            call.into == "dead" and call.error == error for call in (*one.settled, *one.perhaps_settled)
        )
        delivered = len(one.deliveries) + history.receives_unanswered
        if not rejected and not (history.max_attempts and delivered >= history.max_attempts):
            yield f"{message_id}: {error!r}"


def _exported_early(history: History) -> Iterator[str]:
    """Yield messages that a lake had before any call can have archived them."""
    had = dict.fromkeys(_in_lake(history), NEVER) | history.exported
    for message_id, by in had.items():
        one = history.message(message_id)
        if not any(
            call.into == "archived" and call.began < by for call in (*one.settled, *one.perhaps_settled)
        ):
            yield f"{message_id}"


def _exported_twice(history: History) -> Iterator[str]:
    """Yield messages that a lake has more than once."""
    for message_id, times in Counter(_in_lake(history)).items():
        if times > 1:
            yield f"{message_id}, {times} times"


def _not_exported(history: History) -> Iterator[str]:
    """Yield messages that a lake does not have though the database was told so."""
    if history.look is not None and history.look.got.get("exported") is not None:
        for message_id in sorted(history.exported.keys() - set(_in_lake(history))):
            yield f"{message_id}"


def _in_lake(history: History) -> list[int]:
    return (history.look.got.get("exported") or []) if history.look is not None else []


def _miscounted(history: History) -> Iterator[str]:
    """Yield counts that are not between what was surely there and what may have been."""
    if not history.counts:
        return
    died = {message_id for message_id, _ in history.look.got["dead"]} if history.look else set()
    begun = sorted(call.began for call in history.sends for _ in call.groups)
    sent = sorted(one.sent_by for one in history.messages.values())
    may_be_gone = sorted(
        min(one.there_until, one.deliveries[-1].began)
        if one.id in died and one.deliveries
        else one.there_until
        for one in history.messages.values()
    )
    gone = sorted(one.gone_by for one in history.messages.values())
    for call in history.counts:
        least = bisect_left(sent, call.began) - bisect_right(may_be_gone, call.ended)
        most = bisect_right(begun, call.ended) - bisect_left(gone, call.began)
        if not least <= call.got <= most:
            yield f"{call.got}, of {max(least, 0)} to {most}"


RULES: dict[str, Callable[[History], Iterator[str]]] = {
    "invented": _invented,
    "lost": _lost,
    "not kept": _kept,
    "settled twice": _settled_twice,
    "delivered after it was settled": _delivered_again,
    "leased twice at a time": _leases_overlap,
    "settled by an old lease": _old_lease,
    "dead without a cause": _without_cause,
    "exported before it was archived": _exported_early,
    "exported twice": _exported_twice,
    "not exported": _not_exported,
    "miscounted": _miscounted,
}
# For a queue whose policy is `ordered`.
ORDERED_RULES: dict[str, Callable[[History], Iterator[str]]] = {
    "out of order": _out_of_order,
    "in flight together": _in_flight_together,
}


def problems(calls: Sequence[Call], *, ordered: bool = False, max_attempts: int = 0) -> list[str]:
    """Return what a history shows that no queue may do, at most twenty of each kind.

    `calls` are in the order in which they began, all of one queue, without those that had no effect. `ordered`: its
    policy is. `max_attempts`: its policy's, 0 without one.
    """
    history = History(max_attempts=max_attempts)
    for call in calls:
        VERBS[call.verb](history, call)
    rules = RULES | ORDERED_RULES if ordered else RULES
    return [f"{name}: {text}" for name, rule in rules.items() for text in islice(rule(history), SHOWN_MAX)]
