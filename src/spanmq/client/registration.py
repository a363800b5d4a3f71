"""A process as the server knows it: the queues that it waits for, and the channel on which senders wake it. No I/O."""

from collections.abc import Iterable
from time import monotonic
from typing import Final
from uuid import uuid4

from spanmq.client import functions
from spanmq.client.call import SqlCall
from spanmq.client.functions import Awaited, Polled

# How often the queues are registered again, which also returns their policies; the server forgets a listener
# after 90 seconds.
REGISTER_SECONDS: Final = 30.0


class Registration:
    """The registration of one listener, by a key that only it has; its methods return the calls to make."""

    __slots__ = ("again_at", "channel", "key", "names")

    def __init__(self) -> None:
        self.key = uuid4()
        # By id, as the server knows them; other queues were dropped, or the role lacks the right to them.
        self.names: dict[int, str] = {}
        self.channel: str | None = None
        self.again_at = float("-inf")

    @property
    def is_due(self) -> bool:
        """Return whether it is time to register, at first or again."""
        return monotonic() >= self.again_at

    def forget(self) -> None:
        """Register again at once: the server has crashed, or this process stood still, or its queues are others."""
        self.again_at = float("-inf")

    def register(self, queues: Iterable[str], *, has_channel: bool = True) -> SqlCall[list[Awaited]]:
        """Return the call that registers these queues; `has_channel` says that the process can listen."""
        return functions.await_messages(queues, self.key, has_channel=has_channel)

    def registered(self, awaited: list[Awaited]) -> bool:
        """Note what was registered; return whether the channel to listen to is another one now."""
        self.again_at = monotonic() + REGISTER_SECONDS
        self.names = {queue.queue_id: queue.queue for queue in awaited}
        before, self.channel = self.channel, next((queue.channel for queue in awaited), None)
        return self.channel != before

    def poll(self, *, waits: bool = True) -> SqlCall[Polled]:
        """Return the call that asks which queues have messages, and announces that the process waits."""
        return functions.poll(self.key, waits=waits)

    def pass_on(self, queue_ids: Iterable[int], *, is_busy: bool = False) -> SqlCall[list[int]]:
        """Return the call that wakes other processes for these queues; `is_busy` ends the announcement."""
        return functions.pass_on(self.key, queue_ids, is_busy=is_busy)

    def queues(self, queue_ids: Iterable[int]) -> list[str]:
        """Return the names of these queues, as far as they are registered."""
        return [self.names[number] for number in queue_ids if number in self.names]
