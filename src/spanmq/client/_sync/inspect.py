# Generated from src/spanmq/client/_async/inspect.py by tools/generate_sync.py: change that file.

"""The inside of queues, at a bounded cost: `client.inspect`."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Unpack

from spanmq.client import argument, functions
from spanmq.client.argument import optional
from spanmq.client.call import optional_queue_call, queue_call
from spanmq.client.rows import changes, explanations, listed, only, string, task_shapes
from spanmq.codec.body import Codec
from spanmq.model import (
    Change,
    Explanation,
    FailingCause,
    FailingFilters,
    FailingMessage,
    Failure,
    Group,
    HeldLease,
    Message,
    QueueCount,
    QueueStorage,
    Segment,
    TaskShape,
)

if TYPE_CHECKING:
    from spanmq.client._sync.connection import Link


class Inspect:
    """Calls that inspect a queue; their cost does not grow with the number of messages."""

    def __init__(self, link: "Link", codec: Codec) -> None:
        self._link = link
        self._codec = codec

    def state(self, queue: str, message_id: int) -> str:
        """Return the state of the message of a `queue` with this `message_id`.

        One of pending, processing, delayed, failed (waits for its backoff), dead, completed, cancelled, expired,
        discarded (as a dead letter) and unknown. `explain` has what it waits for. Raises
        QueueNotFoundError.
        """
        return self._link.run(
            queue_call(queue, "state", string, argument.bigint("message_id", message_id).to("msg_id"))
        )

    def explain(self, queue: str, message_id: int) -> list[Explanation]:
        """Return why a message is not delivered, the first decided reason first, and what would release it.

        It is the message of a `queue` with this `message_id`. A row with the code "visible" means that receives of
        this moment return it; rows behind that are about the workers of the queue. Raises QueueNotFoundError.
        """
        message = argument.bigint("message_id", message_id).to("msg_id")
        return self._link.run(queue_call(queue, "explain", explanations, message))

    def look_ahead(self, queues: Sequence[str]) -> list[float | None]:
        """Return in how many seconds the next message of each of these `queues` becomes due, None if none is known.

        For a caller that waits by itself: a delay, a backoff or the end of a lease is not announced. None also for a
        queue that does not exist. Raises InvalidArgumentError for a name that is not a string.
        """
        return self._link.run(functions.look_ahead_all(queues))

    def failures(self, queue: str, message_id: int) -> list[Failure]:
        """List the failures of a message, the first one first.

        It is the message of a `queue` with this `message_id`. Raises QueueNotFoundError.
        """
        message = argument.bigint("message_id", message_id).to("msg_id")
        return self._link.run(queue_call(queue, "failures", listed(Failure), message))

    def failing(self, queue: str | None = None, limit: int = 100) -> list[FailingCause]:
        """List the causes of failure of the messages that wait for another attempt, the most frequent first.

        It reads one `queue`, or (None) the `limit` queues with the most of these messages among all that you may look
        into; at most `limit` causes. Beyond 500 messages it reads a sample of their errors. Raises QueueNotFoundError.
        """
        read = listed(FailingCause, queue="queue_name", count="n", first_message_id="first_id")
        return self._link.run(
            optional_queue_call(queue, "failing", read, argument.integer("limit", limit).to("qty"))
        )

    def failing_messages(
        self,
        queue: str,
        *,
        after: int = 0,
        limit: int = 100,
        newest_first: bool = False,
        **filters: Unpack[FailingFilters],
    ) -> list[FailingMessage]:
        """List the messages of a `queue` that wait for another attempt, in the order of their ids.

        At most `limit`, with ids above `after`. With `newest_first` the newest one comes first, and the ids are below
        `after` (0: all). Raises InvalidArgumentError for an unknown one, and QueueNotFoundError. `filters` are the
        fields of FailingFilters.
        """
        arguments = (
            *functions.failing_filters(filters),
            argument.bigint("after", after),
            argument.integer("limit", limit).to("qty"),
            *functions.newest(newest_first),
        )
        read = listed(FailingMessage, message_id="msg_id")
        return self._link.run(queue_call(queue, "failing_messages", read, *arguments))

    def changes(
        self, queue: str | None = None, *, before: int | None = None, limit: int = 100
    ) -> list[Change]:
        """List which role, token or command changed what in a `queue`, or (None) in any, the newest change first.

        Changes are kept for 90 days, also those of a queue that was dropped. At most `limit`, with ids below `before`,
        a change's id. Raises InvalidArgumentError for a negative limit, QueueNotFoundError, and for all queues
        MissingPrivilegeError without the right "look" on all.
        """
        arguments = (*optional(argument.bigint, "before", before), argument.integer("limit", limit).to("qty"))
        return self._link.run(optional_queue_call(queue, "list_changes", changes, *arguments))

    def archive(
        self,
        queue: str,
        quantity: int = 10,
        *,
        after: int = 0,
        body_bytes_max: int | None = None,
        newest_first: bool = False,
    ) -> list[Message]:
        """Return archived messages of a `queue` with ids above `after`, in order, up to `quantity`.

        With `newest_first` the newest one comes first, and the ids are below `after` (0: all). A body or headers of
        more than `body_bytes_max` bytes are replaced by `{"spanmq.cut": bytes}`. Raises QueueNotFoundError.
        """
        codec = self._codec.of(queue)
        return self._link.run(
            functions.peek(
                "peek_archive", codec, queue, quantity, after, body_bytes_max, newest_first=newest_first
            )
        )

    def task_shapes(self, queue: str) -> list[TaskShape]:
        """List with which arguments messages for tasks were sent to a `queue`, as senders note it about every ten
        minutes.

        Senders are programs with tasks of Python; up to 100 shapes of a role are noted. Raises QueueNotFoundError.
        """
        return self._link.run(queue_call(queue, "list_task_shapes", task_shapes))

    def leases(self, queue: str, limit: int = 100) -> list[HeldLease]:
        """List what receivers hold of a `queue`, the oldest lease first.

        At most `limit` leases. Raises QueueNotFoundError.
        """
        most = argument.integer("limit", limit).to("qty")
        return self._link.run(queue_call(queue, "list_leases", listed(HeldLease), most))

    def groups(self, queue: str, limit: int = 100) -> list[Group]:
        """List groups of a `queue` and what they wait for, blocked ones first.

        At most `limit`. Reads the next 2,000 held runs to become visible, the 2,000 that became visible first, and the
        first 2,000 fresh ones. Raises QueueNotFoundError.
        """
        read = listed(Group, group="group_key")
        return self._link.run(
            queue_call(queue, "list_groups", read, argument.integer("limit", limit).to("qty"))
        )

    def segments(self, queue: str, limit: int = 100) -> list[Segment]:
        """List the tables of the log of a `queue`, the newest first.

        At most `limit`. Raises QueueNotFoundError.
        """
        most = argument.integer("limit", limit).to("qty")
        return self._link.run(queue_call(queue, "list_segments", listed(Segment), most))

    def count(self, queues: Iterable[str] | None = None, *, most: int = 200) -> list[QueueCount]:
        """Count the messages of queues that hold few, which costs little on any queue.

        Of these `queues` (None: all) those with more than `most` messages have no counts, and those that do not exist
        are left out. Raises InvalidArgumentError unless `most` is 1 to 100,000.
        """
        arguments = (*functions.queue_names("queues", queues), argument.integer("most", most))
        return self._link.run(optional_queue_call(None, "count_messages", listed(QueueCount), *arguments))

    def storage(self, queue: str) -> QueueStorage:
        """Return the disk space of a `queue`, in bytes; state and WAL are those of all queues.

        Raises QueueNotFoundError.
        """
        return self._link.run(queue_call(queue, "storage", only(QueueStorage)))
