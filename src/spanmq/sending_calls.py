"""The SQL function that sends with what PGMQ doesn't know: its arguments and its rows. No I/O here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from spanmq import call as argument
from spanmq.batch import Encoded
from spanmq.call import Argument, Call, Delay, Seconds, numbers
from spanmq.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True)
class SendOptions:
    """What is asked for beside body, headers and delay, for all messages of a call."""

    priority: int
    expires_in: Seconds | None
    max_attempts: int | None
    dedup_for: Seconds
    fingerprint: str | None
    ordered: bool

    @property
    def is_plain(self) -> bool:
        """Tell whether PGMQ's send does it."""
        return (
            self.priority == 0
            and self.expires_in is None
            and self.max_attempts is None
            and self.fingerprint is None
            and not self.ordered
        )


def send_messages(
    queue: str,
    batch: list[Encoded],
    delay: Delay | None,
    options: SendOptions,
    dedup_ids: Sequence[str | None] | None,
) -> Call[list[int]]:
    """Send as many messages as one call may carry."""
    arguments: list[Argument] = [
        argument.queue_name("queue", queue),
        argument.jsons("messages", (body for body, _ in batch)),
    ]
    if any(headers is not None for _, headers in batch):
        arguments.append(argument.jsons("headers", (headers for _, headers in batch)))
    # What is left to its default is not passed: the server's defaults count.
    if delay is not None:
        arguments.append(argument.seconds_from_now("delay", delay))
    if options.priority != 0:
        arguments.append(argument.integer("priority", options.priority))
    if options.expires_in is not None:
        arguments.append(argument.seconds("expires_in", options.expires_in))
    if options.max_attempts is not None:
        arguments.append(argument.integer("max_attempts", options.max_attempts))
    if dedup_ids is not None:
        arguments.append(argument.texts("dedup_ids", dedup_ids))
        arguments.append(argument.seconds("dedup_for", options.dedup_for))
    if options.fingerprint is not None:
        arguments.append(argument.text("fingerprint", options.fingerprint))
    if options.ordered:
        arguments.append(argument.boolean("ordered", options.ordered))
    return Call("send_messages", tuple(arguments), numbers, queue, native=True)


def send_chunks(
    queue: str,
    chunks: Iterator[list[Encoded]],
    delay: Delay | None,
    options: SendOptions,
    dedup_ids: Iterable[str | None] | None,
) -> Iterator[Call[list[int]]]:
    """Give a call for each chunk; raises InvalidArgumentError unless each body has an id, or None."""
    if isinstance(dedup_ids, str):
        raise InvalidArgumentError("dedup_ids must be a list of strings, one for each body", queue=queue)
    ids = None if dedup_ids is None else iter(dedup_ids)
    for chunk in chunks:
        own = None if ids is None else list(islice(ids, len(chunk)))
        if own is not None and len(own) < len(chunk):
            raise InvalidArgumentError("a batch needs a dedup_id, or None, for each body", queue=queue)
        yield send_messages(queue, chunk, delay, options, own)
    if ids is not None and next(ids, ids) is not ids:
        raise InvalidArgumentError("a batch has more dedup_ids than bodies", queue=queue)
