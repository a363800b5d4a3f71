# Generated from src/spanmq/sending_async.py by tools/generate_sync.py: change that file.

"""How a client sends; a part of Client."""

from __future__ import annotations

from collections.abc import Iterable

from spanmq import batch, bulk, calls, sending_calls, tracing
from spanmq.batch import EachGroup, EachHeaders
from spanmq.body import Codec, Headers, encode_headers
from spanmq.call import Delay, Seconds
from spanmq.link import Link
from spanmq.message import Routed
from spanmq.sending_calls import SendOptions


class Sending:
    """What goes into queues."""

    _link: Link
    _codec: Codec

    def send(
        self,
        queue: str,
        body: object,
        *,
        headers: Headers | None = None,
        group: str | None = None,
        delay: Delay | None = None,
        priority: int = 0,
        expires_in: Seconds | None = None,
        max_attempts: int | None = None,
        dedup_id: str | None = None,
        dedup_for: Seconds = 300.0,
        fingerprint: str | None = None,
        ordered: bool = False,
    ) -> int:
        """Send a message; give its id.

        Messages of one `group` are delivered in order to who receives in order. `delay` is seconds, a
        timedelta or the moment itself. Raises InvalidBodyError or BodyTooLargeError before anything is sent.

        Of higher `priority` (0 to 9) is what comes first. After `expires_in` seconds it is not delivered any
        more, after `max_attempts` deliveries it is a dead letter. A message with the `dedup_id` of one that
        was sent within `dedup_for` seconds is not sent: the id given is that one's. Raises DedupIdReusedError
        if that one had another `fingerprint`. `ordered` senders of one group commit one after the other, so
        that its ids are in the order of commit.
        """
        with tracing.sending("send", queue) as sending:
            codec = self._codec.of(queue)
            encoded = codec.encode(body), encode_headers(sending.one(headers), group)
            stored = codec.fingerprint(fingerprint)
            options = SendOptions(priority, expires_in, max_attempts, dedup_for, stored, ordered)
            if dedup_id is not None or not options.is_plain:
                dedup_ids = None if dedup_id is None else [dedup_id]
                [message_id] = self._link.run(
                    sending_calls.send_messages(queue, [encoded], delay, options, dedup_ids)
                )
                return sending.sent(message_id)
            return sending.sent(self._link.run(calls.send(queue, *encoded, delay)))

    def send_batch(
        self,
        queue: str,
        bodies: Iterable[object],
        *,
        headers: EachHeaders = None,
        group: EachGroup = None,
        delay: Delay | None = None,
        priority: int = 0,
        expires_in: Seconds | None = None,
        max_attempts: int | None = None,
        dedup_ids: Iterable[str | None] | None = None,
        dedup_for: Seconds = 300.0,
        fingerprint: str | None = None,
        ordered: bool = False,
    ) -> list[int]:
        """Send any number of messages, all or none; give their ids in order.

        Headers and group are one for all, or one for each. Over a pool, bodies may come from a generator:
        they are taken ten thousand at a time, in one transaction that lasts as long as that takes. Large
        batches go by COPY where the role may. The other options are those of `send`, for all; `dedup_ids` has
        one, or None, for each, and two alike in one batch are one message.
        """
        with tracing.sending("send_batch", queue) as sending:
            codec = self._codec.of(queue)
            encoded = batch.encode(codec, bodies, sending.each(headers), group)
            stored = codec.fingerprint(fingerprint)
            options = SendOptions(priority, expires_in, max_attempts, dedup_for, stored, ordered)
            if dedup_ids is not None or not options.is_plain:
                chunks = batch.chunks(encoded)
                message_ids = self._link.run_all(
                    sending_calls.send_chunks(queue, chunks, delay, options, dedup_ids)
                )
            else:
                message_ids = bulk.send_batch(self._link, queue, encoded, delay)
            sending.sent_many(len(message_ids))
            return message_ids

    def send_topic(
        self,
        routing_key: str,
        body: object,
        *,
        headers: Headers | None = None,
        group: str | None = None,
        delay: Seconds | None = None,
    ) -> int:
        """Send a message to every queue with a pattern that matches; give the number of these queues."""
        with tracing.sending("send_topic", routing_key) as sending:
            encoded = (
                self._codec.of(f"topic {routing_key}").encode(body),
                encode_headers(sending.one(headers), group),
            )
            count = self._link.run(calls.send_topic(routing_key, *encoded, delay))
            sending.sent_many(count)
            return count

    def send_batch_topic(
        self,
        routing_key: str,
        bodies: Iterable[object],
        *,
        headers: EachHeaders = None,
        group: EachGroup = None,
        delay: Delay | None = None,
    ) -> list[Routed]:
        """Send any number of messages to every queue with a pattern that matches, all or none."""
        with tracing.sending("send_batch_topic", routing_key) as sending:
            chunks = batch.chunks(
                batch.encode(self._codec.of(f"topic {routing_key}"), bodies, sending.each(headers), group)
            )
            routed = self._link.run_all(calls.send_batch_topic(routing_key, chunk, delay) for chunk in chunks)
            sending.sent_many(len(routed))
            return routed
