"""What a queue is, in plain Python: the storage beside it must show the same after every step.

A message is visible or hidden, not until some time: the test hides by an hour and shows at once, so nobody
waits. What a claim returns is for the queue to choose within rules, so the model judges it and takes it over.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

DEFAULT_GROUP = "_default_fifo_group"
NOBODY = 0  # a lease of which nobody knows


@dataclass(frozen=True, slots=True)
class Message:
    id: int
    body: dict[str, int]
    group: str | None
    visible: bool
    read_ct: int = 0
    lease: int | None = None  # -1: leased by PGMQ's read, which gives no token
    story: tuple[str, ...] = ()  # what failures() tells: retrying, dead, and so on
    backs_off: bool = False
    expired: bool = False  # may be seen, and settled by who holds it, but is delivered no more
    lost: int = 0  # leases that ended without an outcome and were followed by another
    marked: bool = False  # set aside by a claim, to be delivered alone
    dedup_id: str | None = None  # that it holds while it is in the queue, if no later message took it

    @property
    def blocks(self) -> bool:
        """Return whether its ordered group must wait for it: it was delivered, and may yet be settled."""
        return not self.visible and self.read_ct > 0

    @property
    def isolates(self) -> bool:
        """Return whether it may have to be delivered alone: its leases ended without an outcome three times."""
        return self.marked or self.lost + (self.visible and self.lease is not None) >= 3


@dataclass(slots=True)
class Model:
    messages: dict[int, Message] = field(default_factory=dict)
    archive: dict[int, Message] = field(default_factory=dict)
    dead: dict[int, Message] = field(default_factory=dict)
    holders: dict[str, int] = field(default_factory=dict)  # the last message with a dedup_id

    def copy(self) -> "Model":
        return Model(dict(self.messages), dict(self.archive), dict(self.dead), dict(self.holders))

    def visible(self) -> list[int]:
        return sorted(message_id for message_id, message in self.messages.items() if message.visible)

    def deliverable(self) -> list[int]:
        return [message_id for message_id in self.visible() if not self.messages[message_id].expired]

    def isolated(self) -> dict[int, Message]:
        """Return the messages that may have to be delivered alone."""
        return {each: message for each, message in self.messages.items() if message.isolates}

    def send(
        self,
        ids: Sequence[int],
        bodies: Sequence[dict[str, int]],
        groups: Sequence[str | None],
        *,
        visible: bool,
    ) -> None:
        assert list(ids) == sorted(set(ids)), "ids ascend"
        assert not set(ids) & (set(self.messages) | set(self.archive) | set(self.dead)), "ids are new"
        assert len(ids) == len(bodies)
        for message_id, body, group in zip(ids, bodies, groups, strict=True):
            self.messages[message_id] = Message(message_id, body, group, visible)

    def holder(self, dedup_id: str | None, *, until_started: bool = False) -> int | None:
        """Return the message for which the id stands, if any."""
        message = self.messages.get(self.holders.get(dedup_id or "", 0))
        is_started = message is not None and (message.read_ct > 0 or message.lease is not None)
        return None if message is None or (until_started and is_started) else message.id

    def take_id(self, message_id: int, dedup_id: str) -> None:
        self.messages[message_id] = replace(self.messages[message_id], dedup_id=dedup_id)
        self.holders[dedup_id] = message_id

    def claim(
        self,
        ids: Sequence[int],
        quantity: int,
        *,
        exact: bool,
        short: bool,
        isolates: bool = False,
        wanted: Sequence[int] | None = None,
    ) -> list[Message]:
        """Judge a claim that returned these ids; return the messages before.

        `exact`: it had no choice. `short`: it met messages that had expired, and may give fewer, but some.
        `isolates`: it delivers some messages alone, and none of these while another one is delivered.
        """
        possible = self.deliverable() if wanted is None else list(wanted)
        assert len(ids) <= quantity, "a claim returns no more than was asked for"
        alone = self.isolated() if isolates else {}
        if any(not message.visible for message in alone.values()):
            quantity, possible = len(ids), [each for each in possible if each not in alone or each in ids]
        short, exact = short or bool(alone), exact and not alone
        assert list(ids) == sorted(set(ids)), "a claim returns each message once, in order"
        assert set(ids) <= set(possible), "a claim returns visible messages"
        if short:
            assert bool(ids) == bool(quantity and possible), "a claim returns some if there are"
        else:
            assert len(ids) == min(quantity, len(possible)), "a claim returns as many as there are"
        if exact:
            assert list(ids) == possible[: len(ids)], "a claim returns the oldest messages"
        return [self.messages[message_id] for message_id in ids]

    def disown(self, ids: Sequence[int]) -> None:
        """Take what stands behind these in order from the leases that ran out."""
        taken = {self.messages[each].group for each in ids}
        for message_id, message in self.messages.items():
            if (
                message_id not in ids
                and message.lease is not None
                and message.visible
                and message.group in taken
            ):
                self.messages[message_id] = replace(message, lease=NOBODY)

    def lease(self, ids: Sequence[int], lease: int, *, visible: bool, records: bool = False) -> None:
        """Lease messages; `records`: by receive(), which records the ends of their last leases without an outcome."""
        for message_id in ids:
            message = self.messages[message_id]
            is_lost = message.lease is not None and not message.marked
            self.messages[message_id] = replace(
                message,
                visible=visible,
                read_ct=message.read_ct + 1,
                lease=lease,
                backs_off=False,
                story=(*message.story, "expired") if is_lost and records else message.story,
                lost=message.lost + is_lost,
                marked=False,
            )

    def mark(self, ids: Sequence[int]) -> None:
        """Judge which messages the last claim set aside, and take it over: their last leases are lost now."""
        for message_id in ids:
            message = self.messages[message_id]
            if not message.marked:
                assert message.visible
                assert message.isolates, f"{message_id} need not be delivered alone"
                story = (*message.story, "expired")
                self.messages[message_id] = replace(message, story=story, lost=message.lost + 1, marked=True)

    def remove(self, ids: Sequence[int], *, archive: bool = False) -> list[int]:
        """Take messages out of the queue; return which of them were in it."""
        found = sorted({message_id for message_id in ids if message_id in self.messages})
        for message_id in found:
            message = self.messages.pop(message_id)
            if archive:
                self.archive[message_id] = message
        return found

    def hide(self, ids: Sequence[int], *, visible: bool) -> list[int]:
        """Set the vt of messages, by which they leave their leases; return which were in the queue."""
        found = sorted({message_id for message_id in ids if message_id in self.messages})
        for message_id in found:
            self.messages[message_id] = replace(
                self.messages[message_id], visible=visible, lease=None, backs_off=False
            )
        return found

    def held(self, lease: int, ids: Sequence[int]) -> list[int]:
        """Return which of them this lease holds, whether it ran out or not."""
        there = {message_id: self.messages.get(message_id) for message_id in ids}
        return sorted(
            message_id for message_id, message in there.items() if message and message.lease == lease
        )

    def ack(self, lease: int, ids: Sequence[int]) -> list[tuple[int, str]]:
        held = self.held(lease, ids)
        self.remove(held)
        return outcomes(ids, held, "acked")

    def nack(self, lease: int, ids: Sequence[int], *, visible: bool) -> list[tuple[int, str]]:
        held = self.held(lease, ids)
        for message_id in held:
            message = self.messages[message_id]
            self.messages[message_id] = replace(
                message,
                visible=visible,
                lease=None,
                story=(*message.story, "retrying"),
                backs_off=not visible,
            )
        return outcomes(ids, held, "retrying")

    def reject(self, lease: int, ids: Sequence[int]) -> list[tuple[int, str]]:
        held = self.held(lease, ids)
        self.bury(held)
        return outcomes(ids, held, "dead")

    def release(self, lease: int, ids: Sequence[int]) -> list[tuple[int, str]]:
        held = self.held(lease, ids)
        for message_id in held:
            message = self.messages[message_id]
            self.messages[message_id] = replace(
                message, visible=True, lease=None, read_ct=message.read_ct - 1
            )
        return outcomes(ids, held, "released")

    def extend(self, lease: int, ids: Sequence[int]) -> list[tuple[int, str]]:
        held = self.held(lease, ids)
        for message_id in held:
            self.messages[message_id] = replace(self.messages[message_id], visible=False)
        return outcomes(ids, held, "extended")

    def bury(self, ids: Sequence[int]) -> None:
        for message_id in ids:
            message = self.messages.pop(message_id)
            self.dead[message_id] = replace(message, story=(*message.story, "dead"))

    def expire(self, ids: Sequence[int]) -> list[int]:
        """Let messages expire; return those that are there."""
        there = sorted({message_id for message_id in ids if message_id in self.messages})
        for message_id in there:
            self.messages[message_id] = replace(self.messages[message_id], expired=True)
        return there

    def bury_expired(self, dead: Sequence[int]) -> bool:
        """Judge which messages became dead letters in a claim, or in maintain, and take it over."""
        new = sorted(set(dead) - set(self.dead))
        assert all(self.messages[each].expired and may_expire(self.messages[each]) for each in new), new
        self.bury(new)
        return bool(new)

    def state(self, message_id: int) -> str | None:
        """Return what state() must say; None if that depends on how it went."""
        message = self.messages.get(message_id)
        if message is None:
            gone = "completed" if message_id in self.archive else None
            return "dead" if message_id in self.dead else gone
        if message.visible:
            return "pending"
        if message.lease is not None:
            return "processing"
        return "failed" if message.backs_off else "delayed"

    def redrive(self, quantity: int, *, visible: bool) -> list[tuple[int, int | None]]:
        """Put the dead letters with the lowest ids back, as messages that were never delivered.

        One whose dedup_id stands for another message stays: that message is beside it.
        """
        redriven = []
        for message_id in sorted(self.dead)[:quantity]:
            redriven.append((message_id, self.holder(self.dead[message_id].dedup_id)))
            if redriven[-1][1] is not None:
                continue
            message = self.dead.pop(message_id)
            if message.dedup_id is not None:
                self.holders[message.dedup_id] = message_id
            self.messages[message_id] = replace(
                message,
                visible=visible,
                read_ct=0,
                lease=None,
                backs_off=False,
                expired=False,
                lost=0,
                marked=False,
            )
        return redriven

    def is_leased(self, message_id: int) -> bool:
        message = self.messages.get(message_id)
        return message is not None and message.lease is not None

    def cancel(self, ids: Sequence[int]) -> list[tuple[int, str]]:
        outcomes = []
        for message_id in sorted(set(ids)):
            message = self.messages.get(message_id)
            if message is None:
                outcomes.append((message_id, "unknown"))
            else:
                outcomes.append((message_id, "cancelled"))
                del self.messages[message_id]
        return outcomes

    def heads(self) -> dict[str, list[int]]:
        """Return the head run of each group that is not blocked: what may be delivered, in order."""
        groups: dict[str, list[Message]] = {}
        for message_id in sorted(self.messages):
            message = self.messages[message_id]
            groups.setdefault(message.group or DEFAULT_GROUP, []).append(message)
        runs: dict[str, list[int]] = {}
        for group, messages in groups.items():
            if any(message.blocks for message in messages):
                continue
            run = []
            for message in messages:
                if not message.visible:
                    break
                if not message.expired:
                    run.append(message.id)
            if run:
                runs[group] = run
        return runs

    def claim_grouped(self, ids: Sequence[int], quantity: int, *, mode: str, short: bool) -> None:
        """Judge a grouped read that returned these ids, in this order."""
        runs = self.heads()
        taken: dict[str, list[int]] = {}
        for message_id in ids:
            taken.setdefault(self.messages[message_id].group or DEFAULT_GROUP, []).append(message_id)
        for group, mine in taken.items():
            assert mine == runs.get(group, [])[: len(mine)], f"the head of group {group} in order: {runs}"
        available = len(runs) if mode == "head" else sum(map(len, runs.values()))
        if short:
            assert bool(ids) == bool(quantity and available), f"some if there are: {runs}"
            return
        assert len(ids) == min(quantity, available), f"as many as there are: {runs}"
        if mode == "head":
            assert all(len(mine) == 1 for mine in taken.values()), "one of each group"
        elif mode == "rr":
            depth = max(map(len, taken.values()), default=0)
            for group, run in runs.items():
                got = len(taken.get(group, []))
                assert got >= min(depth - 1, len(run)), "no group gets a second before each has had one"


def outcomes(ids: Sequence[int], held: Sequence[int], outcome: str) -> list[tuple[int, str]]:
    return [(message_id, outcome if message_id in held else "stale") for message_id in sorted(set(ids))]


def may_expire(message: Message) -> bool:
    """Return whether nobody has it in work."""
    return message.visible or message.lease is None
