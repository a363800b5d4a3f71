"""Dead letters: `client.dead_letters`."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from spanmq.client import argument, functions
from spanmq.client._async.categories import AsyncCategories
from spanmq.client.argument import Seconds, optional
from spanmq.client.call import Shape, optional_queue_call, queue_call
from spanmq.client.functions import UNCHANGED
from spanmq.client.namespace import Namespace
from spanmq.client.rows import dead_letters, listed, number, redriven_letters
from spanmq.codec.body import Codec, Headers, encode_headers
from spanmq.model import DeadLetter, DeadLetterCount, DeadLetterFilters, Redriven

if TYPE_CHECKING:
    from spanmq.client._async.connection import AsyncLink


class AsyncDeadLetters:
    """List, redrive and discard messages that failed for good.

    `filters` are the fields of DeadLetterFilters: a call raises TypeError for an unknown one, and
    InvalidArgumentError for a value that is not valid.
    """

    # A namespace for each noun.
    categories = Namespace(AsyncCategories)

    def __init__(self, link: "AsyncLink", codec: Codec) -> None:
        self._link = link
        self._codec = codec
        self.categories = AsyncCategories(self._link)

    async def show(
        self, queue: str, message_id: int, *, body_bytes_max: int | None = None
    ) -> list[DeadLetter]:
        """Return the dead letters that a message became, the first one first.

        It is the message of a `queue` with this `message_id`. A body or headers of more than `body_bytes_max` bytes
        are replaced by `{"spanmq.cut": bytes}`. Raises QueueNotFoundError.
        """
        arguments = (
            argument.bigint("message_id", message_id).to("msg_id"),
            *optional(argument.integer, "body_bytes_max", body_bytes_max),
        )
        read = partial(dead_letters, self._codec)
        return await self._link.run(
            queue_call(queue, "dead_letters_of", read, *arguments, shape=Shape.MESSAGES)
        )

    async def count(self, queue: str | None = None) -> list[DeadLetterCount]:
        """Count the dead letters of a `queue`, or (None) of all, by queue and category: those that were not redriven.

        Costs the same whatever their number. Raises QueueNotFoundError.
        """
        read = listed(DeadLetterCount, queue="queue_name", count="n")
        return await self._link.run(optional_queue_call(queue, "count_dead_letters", read))

    async def redrive(
        self,
        queue: str,
        *,
        patch: Sequence[Mapping[str, Any]] | None = None,
        limit: int = 1_000,
        rate: float | None = None,
        delay: Seconds | None = None,
        dry_run: bool = False,
        **filters: Unpack[DeadLetterFilters],
    ) -> list[Redriven]:
        """Redrive up to `limit` dead letters of a `queue` that match the `filters`, the lowest ids first; none twice.

        Returns them, and those that are left because another message in the queue has their dedup_id (`dedup_until`):
        they have its id as `beside`, and no `visible_at`; a loop ends when none has one. A redriven message becomes
        visible after `delay` seconds (None: the `redrive_delay` of the policy, 0: at once). With a `rate`, that many
        messages become visible a second. They keep their ids and their history; their attempts start again. With
        `dry_run` nothing is done; the list has the messages that would be redriven.

        A `patch` (JSON Patch, RFC 6902, without `copy`) changes the body of each, of all or of none:
        InvalidArgumentError if more than `limit` match or the patch does not fit one of them, NotPossibleError
        for an encrypted body and for a message that a subscription has too. The dead letter keeps its body.

        Raises InvalidArgumentError for a rate that is not above 0, and QueueNotFoundError.
        """
        arguments = (
            *functions.dead_letter_filters(self._codec, filters),
            *optional(argument.json, "patch", None if patch is None else self._codec.encode(patch)),
            argument.integer("limit", limit).to("qty"),
            *optional(argument.real, "rate", rate),
            *optional(argument.seconds, "delay", delay),
            argument.boolean("dry_run", dry_run),
        )
        read = partial(redriven_letters, self._codec.of(queue))
        return await self._link.run(queue_call(queue, "redrive", read, *arguments))

    async def edit(
        self,
        queue: str,
        message_id: int,
        *,
        body: object = UNCHANGED,
        headers: Headers | None = None,
        delay: Seconds | None = None,
    ) -> int:
        """Redrive the dead letter of a `queue` with this `message_id`; return its id.

        Its new `body` is any value that JSON can represent, its new `headers` a mapping; without them they stay. If
        they name another group, it goes into that one. It is visible after `delay` seconds (None: the `redrive_delay`
        of the policy, 0: at once). Raises NotFoundError if no dead letter of this id waits, DedupIdInUseError if
        another message in the queue has its dedup_id, InvalidBodyError, and QueueNotFoundError.
        """
        encode = self._codec.of(queue).encode
        arguments = (
            argument.bigint("message_id", message_id).to("msg_id"),
            *(() if body is UNCHANGED else (argument.json("message", encode(body)),)),
            *(() if headers is None else (argument.json("headers", encode_headers(headers, None)),)),
            *optional(argument.seconds, "delay", delay),
        )
        return await self._link.run(queue_call(queue, "redrive_message", number, *arguments))

    async def discard(
        self,
        queue: str,
        *,
        redriven: bool | None = False,
        limit: int = 1_000,
        dry_run: bool = False,
        **filters: Unpack[DeadLetterFilters],
    ) -> int:
        """Delete up to `limit` dead letters of a `queue` that match the `filters`; return how many.

        `redriven` False selects those that were not redriven, True those that were, None both. With `dry_run` they
        are only counted. Raises QueueNotFoundError.
        """
        arguments = (
            *functions.dead_letter_filters(self._codec, filters),
            argument.flag_or_any("redriven", redriven),
            argument.integer("limit", limit).to("qty"),
            argument.boolean("dry_run", dry_run),
        )
        return await self._link.run(queue_call(queue, "purge_dead_letters", number, *arguments))

    async def list(
        self,
        queue: str | None = None,
        *,
        redriven: bool | None = False,
        after: int = 0,
        limit: int = 100,
        body_bytes_max: int | None = None,
        newest_first: bool = False,
        **filters: Unpack[DeadLetterFilters],
    ) -> list[DeadLetter]:
        """List the dead letters of a `queue`, or (None) of all, in the order in which they were added.

        They match the `filters`; with `newest_first` the last one comes first. `redriven` False selects those that
        were not redriven, True those that were, None both. A page ends after `limit`; the next one begins `after` the
        last `dead_letter_id`. A body or headers of more than `body_bytes_max` bytes are replaced by `{"spanmq.cut":
        bytes}`. Raises QueueNotFoundError, and for all queues MissingPrivilegeError without the right "look" on all.
        """
        arguments = (
            *functions.dead_letter_filters(self._codec, filters),
            argument.flag_or_any("redriven", redriven),
            argument.bigint("after", after),
            argument.integer("limit", limit).to("qty"),
            *optional(argument.integer, "body_bytes_max", body_bytes_max),
            *functions.newest(newest_first),
        )
        read = partial(dead_letters, self._codec)
        return await self._link.run(
            optional_queue_call(queue, "dead_letters", read, *arguments, shape=Shape.MESSAGES)
        )
