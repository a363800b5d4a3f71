"""What a run must not have done, told from its calls: when each began and ended, what it returned, what is left."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tests.sql.interleave.machine import Call
from tests.sql.interleave.scenes import Scene

VERB = re.compile(r"(?:pgmq|spanmq)\.(\w+)\('jobs'")
SETTLES = {"ack": "acked", "reject": "dead"}
ENDS_LEASES = {"nack": "retrying", "release": "released"}
DELIVERS = {"receive", "read", "pop"}


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
        outcome = (SETTLES | ENDS_LEASES).get(self.verb)
        if outcome is not None:
            return [int(str(row[0])) for row in rows if row[1] == outcome]
        if self.verb in {"metrics", "extend", "drop_queue"}:
            return []
        return [int(str(row[0])) for row in rows]

    @property
    def settles(self) -> bool:
        return self.verb in {*SETTLES, "delete", "archive", "pop"}

    @property
    def seconds(self) -> float:
        """Return the length of the lease or delay that it asked for."""
        place = 2 if self.verb in {"receive", "nack", "set_vt"} else 1
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

    def may_be_over(self, delivery: Event, message_id: int, since: int, until: int) -> bool:
        """Return whether a lease may have been over, or its message settled, for a call from one turn to another."""
        was_extended = any(
            event.call.session == delivery.call.session
            and delivery.call.began < event.call.began
            and event.call.ended < since
            and event.call.rows == [(str(len(delivery.ids)),)]
            for event in self.of("extend")
        )
        if delivery.verb != "pop" and delivery.seconds <= 0 and not was_extended:
            return True
        return any(
            event.call.ended >= delivery.call.began and event.call.began <= until
            for event in self._ends(delivery, message_id)
        )

    def is_over(self, delivery: Event, message_id: int, turn: int) -> bool:
        """Return whether a lease was over at a turn, in whichever order the calls that overlap took effect."""
        return (delivery.seconds <= 0 and self.may_be_over(delivery, message_id, turn, turn - 1)) or any(
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
    if not scene.drops:
        yield from _lost_or_kept(story, left or [])
    yield from _settled_twice(story)
    yield from _delivered_again(story)
    if scene.policy != "{}":
        yield from _out_of_order(story)
    yield from _missed(story, calls)
    yield from _not_found(story)
    yield from _miscounted(story)


def _errors(scene: Scene, calls: list[Call]) -> Iterator[str]:
    allowed = {None} | ({"40P01"} if scene.may_deadlock else set()) | ({"42P01"} if scene.drops else set())
    for call in calls:
        if call.sqlstate not in allowed and call.sqlstate != "25P02":
            yield f"{call.text}: {call.sqlstate} {call.rows}"


def _lost_or_kept(story: Story, left: list[int]) -> Iterator[str]:
    sent = {each for each, _, _ in story.sent}
    settled = {each for event in story.events if event.settles for each in event.ids}
    if lost := sent - settled - set(left):
        yield f"lost: {sorted(lost)}"
    if kept := set(left) - (sent - settled):
        yield f"settled, or never sent, and in the queue: {sorted(kept)}"
    if len(left) != len(set(left)):
        yield f"twice in the queue: {left}"


def _settled_twice(story: Story) -> Iterator[str]:
    for each, _, _ in story.sent:
        if len(events := story.settled(each)) > 1:
            yield f"settled twice: {each} by {[event.call.text for event in events]}"


def _delivered_again(story: Story) -> Iterator[str]:
    deliveries = [event for event in story.events if event.verb in DELIVERS]
    for each, _, _ in story.sent:
        settled = story.settled(each)
        own = [event for event in deliveries if each in event.ids]
        for delivery in own:
            if any(event.visible_at < delivery.call.began for event in settled if event is not delivery):
                yield f"delivered after it was settled: {each}"
        for place, one in enumerate(own):
            for other in own[place + 1 :]:
                earlier, later = sorted((one, other), key=lambda event: event.visible_at)
                if not story.may_be_over(earlier, each, later.call.began, later.call.ended) and not (
                    earlier.call.began <= later.call.ended
                    and story.may_be_over(later, each, earlier.call.began, earlier.call.ended)
                ):
                    yield f"delivered twice at a time: {each}"
        for event in story.of("ack", "reject"):
            newer = [
                delivery
                for delivery in own
                if delivery.call.session != event.call.session and delivery.visible_at < event.call.began
            ]
            mine = [delivery for delivery in own if delivery.call.session == event.call.session]
            if each in event.ids and mine and any(d.call.began > mine[-1].visible_at for d in newer):
                yield f"settled under a lease that another one has followed: {each}"


def _out_of_order(story: Story) -> Iterator[str]:
    deliveries = [event for event in story.events if event.verb in DELIVERS]
    for delivery in deliveries:
        for each in delivery.ids:
            group = story.groups.get(each)
            for lower, _, visible_at in story.sent:
                if (
                    lower < each
                    and story.groups.get(lower) == group
                    and visible_at < delivery.call.began
                    and lower not in delivery.ids
                    and not any(event.call.began <= delivery.call.ended for event in story.settled(lower))
                ):
                    yield f"delivered before {lower} of its group: {each}"
            for other in deliveries:
                if (
                    other is delivery
                    or other.visible_at > delivery.visible_at
                    or (other.visible_at == delivery.visible_at and other.call.began > delivery.call.began)
                ):
                    continue
                for before in other.ids:
                    if (
                        before != each
                        and story.groups.get(before) == group
                        and not story.may_be_over(other, before, delivery.call.began, delivery.call.ended)
                    ):
                        yield f"delivered while {before} of its group was in flight: {each}"


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


def _miscounted(story: Story) -> Iterator[str]:
    for event in story.of("metrics"):
        if not event.call.rows or story.scene.drops:
            continue
        began, ended = event.call.began, event.call.ended
        surely = sum(
            visible_at < began and not any(other.call.began <= ended for other in story.settled(each))
            for each, _, visible_at in story.sent
        )
        perhaps = sum(
            sent_at <= ended and not any(other.visible_at < began for other in story.settled(each))
            for each, sent_at, _ in story.sent
        )
        count = int(str(event.call.rows[0][0]))
        if not surely <= count <= perhaps:
            yield f"metrics counted {count}, of {surely} to {perhaps}"
