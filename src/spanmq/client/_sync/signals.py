# Generated from src/spanmq/client/_async/signals.py by tools/generate_sync.py: change that file.

"""Signals: `client.signals`."""

from functools import partial
from typing import TYPE_CHECKING

from spanmq.client import argument
from spanmq.client.argument import Seconds, optional
from spanmq.client.call import queue_call
from spanmq.client.rows import optional_number, signals, string
from spanmq.codec.body import Codec, Headers, encode_headers
from spanmq.model import Message, SignalEntry

if TYPE_CHECKING:
    from spanmq.client._sync.connection import Link


class Signals:
    """Messages that wait for a signal by its name, and the signals that release them."""

    def __init__(self, link: "Link", codec: Codec) -> None:
        self._link = link
        self._codec = codec

    def park(
        self,
        queue: str,
        name: str,
        body: object,
        *,
        wait_for: Seconds,
        headers: Headers | None = None,
        group: str | None = None,
        waiter: Message | None = None,
    ) -> int | None:
        """Send a `body` into a `queue` when the signal `name` comes, or after `wait_for` seconds without it.

        `headers` and `group` are those of `send`. `waiter` is the leased message whose handler waits:
        `inspect.explain` of it shows the wait. The header `x-spanmq-signal` of the message has the `name`, and the
        `body` of the signal, or `timed_out`. If the signal is kept, the message is sent at once: return its id then,
        else None. Raises NotPossibleError if another message waits for this name in the queue, InvalidBodyError,
        InvalidArgumentError, and QueueNotFoundError.
        """
        arguments = (
            argument.text("name", name),
            argument.json("message", self._codec.of(queue).encode(body)),
            argument.seconds("wait_for", wait_for).to("timeout"),
            argument.json("headers", encode_headers(headers, group)),
            *optional(argument.text, "waiter_queue", waiter and waiter.queue),
            *optional(argument.bigint, "waiter_id", waiter and waiter.message_id),
            *optional(argument.bigint, "waiter_lease", waiter and waiter.lease_id),
        )
        return self._link.run(queue_call(queue, "wait_for_signal", optional_number, *arguments))

    def send(
        self,
        queue: str,
        name: str,
        body: object = None,
        *,
        keep_for: Seconds = 86_400.0,
        timed_out: bool = False,
    ) -> str:
        """Send a signal to the message that waits for it; if none does, it is kept for a time.

        The message of a `queue` that waits for this `name` is sent, with the `body`; else the signal is kept for
        `keep_for` seconds, for a wait that begins later. With `timed_out` the wait ends as if its time was over, with
        no body. Return "released" if one waited, "kept" if none did, "replaced" if the signal was kept already, and
        "unknown" if there is no wait to end. Raises InvalidBodyError, InvalidArgumentError for a body of more than
        64 KB of JSON, QueueFullError, and QueueNotFoundError.
        """
        arguments = (
            argument.text("name", name),
            argument.json("body", self._codec.of(queue).encode(body)),
            argument.seconds("keep_for", keep_for),
            argument.boolean("timed_out", timed_out),
        )
        return self._link.run(queue_call(queue, "signal", string, *arguments))

    def list(
        self,
        queue: str,
        *,
        after: str | None = None,
        limit: int = 100,
        only_waits: bool = False,
        body_bytes_max: int | None = None,
    ) -> list[SignalEntry]:
        """List the messages of a `queue` that wait for a signal, and the signals that are kept, by their names.

        At most `limit`, with names after `after`; with `only_waits` no kept signals. A body that is stored in more than
        `body_bytes_max` bytes is replaced by {"spanmq.cut": bytes}. Raises QueueNotFoundError, and
        InvalidArgumentError for a negative limit.
        """
        arguments = (
            *optional(argument.text, "after", after),
            argument.integer("limit", limit).to("qty"),
            argument.boolean("only_waits", only_waits),
            *optional(argument.integer, "body_bytes_max", body_bytes_max),
        )
        read = partial(signals, self._codec.of(queue), queue)
        return self._link.run(queue_call(queue, "list_signals", read, *arguments))
