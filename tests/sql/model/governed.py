"""What a policy adds to the model of a queue: order in groups, priorities, and limits on who receives."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tests.sql.model.model import DEFAULT_GROUP, Message, Model

ENDLESS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    ordered: bool = False
    in_flight: int | None = None
    in_flight_per_group: int | None = None
    shares: bool = False
    group_burst: int | None = None  # of a bucket that never fills again
    burst: int | None = None
    by_priority: bool = False

    @property
    def regards_groups(self) -> bool:
        return (
            self.ordered
            or self.shares
            or self.in_flight_per_group is not None
            or self.group_burst is not None
        )


@dataclass(slots=True)
class Governed(Model):
    policy: Policy = field(default_factory=Policy)
    priorities: dict[int, int] = field(default_factory=dict)
    paused: bool = False
    drawn: Counter[str] = field(default_factory=Counter)

    def copy(self) -> "Governed":
        return Governed(
            dict(self.messages),
            dict(self.archive),
            dict(self.dead),
            dict(self.holders),
            self.policy,
            dict(self.priorities),
            self.paused,
            Counter(self.drawn),
        )

    def in_flight(self) -> Counter[str]:
        """Count what is leased, by group."""
        return Counter(
            group_of(message)
            for message in self.messages.values()
            if message.lease is not None and not message.visible
        )

    def available(self) -> dict[str, list[int]]:
        """Return what may be delivered of each group, in order."""
        if self.policy.ordered:
            return self.heads()
        runs: dict[str, list[int]] = {}
        for message_id in self.visible():
            runs.setdefault(group_of(self.messages[message_id]), []).append(message_id)
        return runs

    def judge(self, ids: Sequence[int], quantity: int, tokens: int) -> None:
        """Judge a receive that returned these ids while there were so many tokens."""
        policy, flying = self.policy, self.in_flight()
        limit = min(quantity, tokens, ENDLESS if policy.in_flight is None else policy.in_flight)
        if policy.in_flight is not None:
            limit = min(limit, max(policy.in_flight - flying.total(), 0))
        runs = self.available()
        taken: dict[str, list[int]] = {}
        for message_id in ids:
            taken.setdefault(group_of(self.messages[message_id]), []).append(message_id)
        assert len(set(ids)) == len(ids), "each message once"
        assert not (self.paused and ids), "nothing comes from a paused queue"
        assert len(ids) <= limit, f"no more than {limit}"
        possible = 0
        for group, run in runs.items():
            most = ENDLESS
            if policy.in_flight_per_group is not None:
                most = max(policy.in_flight_per_group - flying[group], 0)
            if policy.group_burst is not None:
                most = min(most, policy.group_burst - self.drawn[group])
            possible += min(len(run), most)
            assert len(taken.get(group, [])) <= most, f"no more than {most} of group {group}"
            if policy.ordered:
                mine = taken.get(group, [])
                assert mine == run[: len(mine)], f"the head of group {group}, in order: {run}"
        assert set(ids) <= {each for run in runs.values() for each in run}, f"only what is free: {runs}"
        possible = min(limit, possible)
        alone = self.isolated()
        if self.paused or any(not message.visible for message in alone.values()):
            pass  # while a message is handled alone, the others of its kind wait
        elif policy.regards_groups or alone:
            # Shares are drawn up before it is seen what of each group may come.
            assert bool(ids) == bool(possible), f"some if there are: {possible} of {runs}"
        else:
            assert len(ids) == possible, f"as many as there are: {possible} of {runs}"
        if policy.by_priority and set(ids) - set(alone):
            # One that is delivered alone comes before all.
            came, left = (
                [self.priorities.get(each, 0) for each in some if each not in alone]
                for some in (ids, set(self.visible()) - set(ids))
            )
            assert min(came) >= max(left, default=0), "highest first"

    def release_behind(self, ids: Sequence[int]) -> None:
        """Return back, as if undelivered, what is leased behind the first of these in its group."""
        if not self.policy.ordered:
            return
        firsts: dict[str, int] = {}
        for message_id, group in sorted((each, self.groups_gone[each]) for each in ids):
            firsts.setdefault(group, message_id)
        for message_id, message in self.messages.items():
            if message.lease is not None and message_id > firsts.get(group_of(message), message_id):
                self.messages[message_id] = replace(
                    message, visible=True, lease=None, read_ct=message.read_ct - 1, backs_off=False
                )

    @property
    def groups_gone(self) -> dict[int, str]:
        """The group of each message, also of those that just died."""
        return {each: group_of(message) for each, message in [*self.messages.items(), *self.dead.items()]}


def group_of(message: Message) -> str:
    return message.group or DEFAULT_GROUP
