"""What a run must not have done: the rules of histories, and those of a run whose every turn is known."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from lab.bench import history
from tests.sql.interleave.machine import Call
from tests.sql.interleave.scenes import Scene

VERB = re.compile(r"(?:pgmq|spanmq)\.(\w+)\('jobs'")
SETTLES = {"ack": "acked", "reject": "dead"}
ENDS_LEASES = {"nack": "retrying", "release": "released"}
OUTCOMES = {**SETTLES, **ENDS_LEASES, "extend": "extended"}
# The error of all that the scenes reject, and the turn after the last one.
REJECTED, LAST = "x", 10**6


@dataclass(frozen=True, slots=True)
class Event:
    """A call of a transaction that committed; the transaction ended at `visible_at`."""

    verb: str
    call: Call
    visible_at: int

    @property
    def ids(self) -> list[int]:
        """Return the messages that it sent, delivered, or did something to."""
        rows = self.call.rows
        outcome = OUTCOMES.get(self.verb)
        if outcome is not None:
            return [int(str(row[0])) for row in rows if row[1] == outcome]
        if self.verb in {"metrics", "drop_queue"}:
            return []
        return [int(str(row[0])) for row in rows]

    @property
    def lease(self) -> int | None:
        """Return the lease that its call names."""
        found = re.search(r"'jobs', (\d+), '\{", self.call.text)
        return int(found[1]) if found and self.verb in OUTCOMES else None

    @property
    def settles(self) -> bool:
        return self.verb in {*SETTLES, "delete", "archive", "pop"}

    @property
    def seconds(self) -> float:
        """Return the length of the lease or delay that it asked for."""
        place = 2 if self.verb in {"receive", "nack", "set_vt", "extend"} else 1
        numbers = re.findall(r"-?\d+(?:\.\d+)?", self.call.text.rpartition("'jobs'")[2])
        return float(numbers[-1] if place == 2 else numbers[0])


@dataclass(slots=True)
class Story:
    """The events of a run, and the messages with which it began, by their ids."""

    scene: Scene
    first: list[int]
    events: list[Event] = field(default_factory=list)
    groups: dict[int, str | None] = field(default_factory=dict)

    def of(self, *verbs: str) -> list[Event]:
        return [event for event in self.events if event.verb in verbs]

    @property
    def sent(self) -> list[tuple[int, int, int]]:
        """Return the messages that were sent: id, when its call began, when it could be seen."""
        return [
            *((each, -1, -1) for each in self.first),
            *(
                (each, event.call.began, event.visible_at)
                for event in self.of("send", "send_batch")
                for each in event.ids
            ),
        ]

    def settled(self, message_id: int) -> list[Event]:
        return [event for event in self.events if event.settles and message_id in event.ids]

    def is_over(self, delivery: Event, message_id: int, turn: int) -> bool:
        """Return whether a lease was over at a turn, in whichever order the calls that overlap took effect."""
        was_extended = any(
            event.call.session == delivery.call.session
            and delivery.call.began < event.call.began
            and message_id in event.ids
            for event in self.of("extend")
        )
        return (delivery.seconds <= 0 and not was_extended) or any(
            event.call.began > delivery.visible_at and event.visible_at < turn
            for event in self._ends(delivery, message_id)
        )

    def _ends(self, delivery: Event, message_id: int) -> Iterator[Event]:
        """Yield the calls that end the leases of a message, this one's or another one's."""
        for event in self.events:
            if (
                event is not delivery
                and message_id in event.ids
                and (
                    event.settles
                    or event.verb in ENDS_LEASES
                    or (event.verb == "set_vt" and event.seconds <= 0)
                )
            ):
                yield event


def story_of(scene: Scene, first: list[int], calls: Iterable[Call]) -> Story:
    """Return the events of transactions that committed."""
    story = Story(scene, first)
    story.groups.update(zip(first, scene.groups, strict=True))
    for session in {call.session for call in calls}:
        transaction: list[Call] = []
        is_open = False
        for call in (each for each in calls if each.session == session):
            if call.text == "begin":
                is_open = True
            elif call.text in {"commit", "rollback"}:
                is_open = False
            else:
                transaction.append(call)
            if not is_open:
                if call.text != "rollback" and all(each.sqlstate is None for each in transaction):
                    story.events += [
                        Event(found[1], each, call.ended)
                        for each in transaction
                        if (found := VERB.search(each.text))
                    ]
                transaction = []
    story.events.sort(key=lambda event: event.call.began)
    for event in story.of("send", "send_batch"):
        group = re.search(r'"x-pgmq-group": "(\w+)"', event.call.text)
        story.groups.update(dict.fromkeys(event.ids, group[1] if group else None))
    return story


def problems(scene: Scene, first: list[int], calls: list[Call], left: list[int] | None) -> Iterator[str]:
    """Yield what is wrong with a run; `left` are the messages in the queue after it, None if it was dropped."""
    story = story_of(scene, first, calls)
    yield from _errors(scene, calls)
    told = [*_told(story), *([] if left is None else [_look(story, left)])]
    yield from history.problems(told, ordered=scene.policy != "{}")
    yield from _missed(story, calls)
    yield from _not_found(story)


def _told(story: Story) -> list[history.Call]:
    """Return the events in the words of a history, with turns for times."""
    first = [history.Call("send", -1, -1, groups=[*story.scene.groups], got=story.first)]
    calls = [
        history.Call(verb, event.call.began, event.visible_at, **rest)
        for event in story.events
        for verb, rest in _words(story, event)
    ]
    return first + calls


def _words(story: Story, event: Event) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the verbs of a history for an event, and what belongs to them."""
    ids = event.ids
    match event.verb:
        case "send" | "send_batch":
            yield "send", {"groups": [story.groups[each] for each in ids], "got": ids}
        case "receive":
            leases = [int(str(row[1])) for row in event.call.rows]
            yield "receive", {"seconds": event.seconds, "got": [*zip(ids, leases, strict=True)]}
        case "read":
            yield "receive", {"seconds": event.seconds, "got": [(each, None) for each in ids]}
        case "pop":
            yield "take", {"got": ids}
        case "nack" | "release":
            yield "free", {"got": ids}
        case "set_vt" if event.seconds <= 0:
            yield "free", {"got": ids}
        case "extend":
            yield "extend", {"seconds": event.seconds, "lease": event.lease, "ids": ids, "got": ids}
        case "metrics" if event.call.rows and not story.scene.drops:
            yield "count", {"got": int(str(event.call.rows[0][0]))}
    if event.settles and event.verb != "pop":
        into = "dead" if event.verb == "reject" else "gone"
        error = REJECTED if event.verb == "reject" else None
        yield "settle", {"lease": event.lease, "into": into, "error": error, "got": ids}


def _look(story: Story, left: list[int]) -> history.Call:
    """Return the last call of a history: `left` are in the queue, and what was rejected is dead."""
    dead = [[each, REJECTED] for event in story.of("reject") for each in event.ids]
    return history.Call("look", LAST, LAST, got={"left": left, "dead": dead})


def _errors(scene: Scene, calls: list[Call]) -> Iterator[str]:
    allowed = {None} | ({"40P01"} if scene.may_deadlock else set()) | ({"42P01"} if scene.drops else set())
    for call in calls:
        if call.sqlstate not in allowed and call.sqlstate != "25P02":
            yield f"{call.text}: {call.sqlstate} {call.rows}"


def _missed(story: Story, calls: list[Call]) -> Iterator[str]:
    """Yield receives of nothing while no other session did anything and messages were visible."""
    for event in story.of("receive", "read", "pop"):
        call = event.call
        if any(
            each.session != call.session and each.began <= call.ended and _ended(each, calls) >= call.began
            for each in calls
        ):
            continue
        visible = [
            each
            for each, _, visible_at in story.sent
            if visible_at < call.began
            and not any(other.call.began < call.began for other in story.settled(each))
            and all(
                story.is_over(other, each, call.began)
                for other in story.of("receive", "read")
                if each in other.ids and other is not event and other.call.began < call.began
            )
            and not any(
                each in other.ids and other.call.began < call.began and other.seconds > 0
                for other in story.of("nack", "set_vt")
            )
        ]
        if story.scene.policy != "{}":
            if any(
                other.seconds > 0
                for other in story.of("nack", "set_vt", "receive", "read")
                if other is not event
            ):
                continue
            visible = visible[:1]
        if visible and not event.ids:
            yield f"nothing was received though {visible} were visible: {call.text}"
        elif (
            visible
            and story.scene.policy == "{}"
            and event.ids[0] > min(visible)
            # These have an order of their own.
            and not re.search("retries|newest", call.text)
        ):
            yield f"{event.ids} were received before {min(visible)}"


def _not_found(story: Story) -> Iterator[str]:
    """Yield deletes that did not find a message, though it was in the queue all the time."""
    if story.scene.drops:
        return
    for event in story.of("delete", "archive"):
        places = re.search(r" n in \((.*?)\)", event.call.text)
        for place in places[1].split(",") if places else ():
            each = story.first[int(place)]
            others = [other for other in story.settled(each) if other is not event]
            if each not in event.ids and not any(other.call.began <= event.call.ended for other in others):
                yield f"not found though it was there: {each} by {event.call.text}"


def _ended(call: Call, calls: list[Call]) -> int:
    """Return when the transaction of a call ended."""
    own = [each for each in calls if each.session == call.session]
    place = own.index(call)
    opened = [each.text for each in own[: place + 1] if each.text in {"begin", "commit", "rollback"}]
    if not opened or opened[-1] != "begin":
        return call.ended
    return next((each.ended for each in own[place:] if each.text in {"commit", "rollback"}), 10**9)
