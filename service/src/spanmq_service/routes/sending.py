"""Routes that send messages."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import asdict
from starlette.responses import Response

from spanmq.client.calls import DedupUntil, OnDuplicate
from spanmq.codec import RawJson
from spanmq.errors import DedupIdReusedError
from spanmq_service.backend import Backend
from spanmq_service.guard.caller import Caller
from spanmq_service.http.arguments import Header
from spanmq_service.http.failure import Refusal, invalid
from spanmq_service.http.json_text import JsonText, reply
from spanmq_service.routes.parts import (
    Body,
    Delay,
    MaySend,
    QueueName,
    RequestModel,
    Seconds,
    Text,
)
from spanmq_service.routes.table import Table

routes = Table("messages")

# Longer than clients retry; the ids are deleted after that.
IDEMPOTENT_SECONDS = 3600.0
BATCH_MAX = 1_000
# Of a repeated request larger bodies must be the same bytes: to parse them takes too long.
COMPARED_BYTES_MAX = 128 * 1024

IdempotencyKey = Annotated[
    Annotated[str, Meta(min_length=1, max_length=200)] | None,
    Header("idempotency-key"),
    Meta(
        description="Within an hour, a repeated request with the same token and key sends nothing and "
        "returns the same ids. Another request with that key is refused (422)."
    ),
]


class NewMessage(RequestModel, kw_only=True):
    """A message to send."""

    body: Body
    headers: dict[str, Any] | None = None
    group: Text | None = None
    delay: Delay | None = None
    priority: Annotated[int, Meta(ge=0, le=9)] = 0
    expires_in: Seconds | None = None
    max_attempts: Annotated[int, Meta(ge=1, le=32_767)] | None = None
    dedup_id: Text | None = None

    @property
    def alike(self) -> tuple[Any, ...]:
        """Return the options that messages must share to be sent by one call of the database."""
        return self.delay, self.priority, self.expires_in, self.max_attempts


class SingleMessage(NewMessage):
    """One message to send."""

    dedup_for: Seconds = 300.0
    ordered: bool = False
    dedup_until: DedupUntil | None = None
    on_duplicate: OnDuplicate = "keep"


class NewMessages(RequestModel, kw_only=True):
    """Messages to send, all or none."""

    messages: Annotated[list[NewMessage], Meta(min_length=1, max_length=BATCH_MAX)]
    dedup_for: Seconds = 300.0
    ordered: bool = False
    dedup_until: DedupUntil | None = None
    on_duplicate: OnDuplicate = "keep"


@dataclass(frozen=True, slots=True)
class KnownBy:
    """The deduplication ids of messages, how long they are stored, and a fingerprint of the request."""

    ids: Sequence[str | None]
    seconds: float
    fingerprint: str | None = None
    until: DedupUntil | None = None
    on_duplicate: OnDuplicate = "keep"


class Sent(Struct):
    """The id of the message, whether sent now or earlier."""

    message_id: int


class SentMessages(Struct):
    """A result for each message, in the same order."""

    results: list[Sent]


@routes.post("/queues/{queue}/messages", status=201, answer=Sent, errors=(409,))
async def send(
    queue: QueueName,
    message: SingleMessage,
    backend: Backend,
    caller: MaySend,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Send a message (SendMessage)."""
    known_by = _known_by(caller, message, [message], idempotency_key)
    with _refused_if_reused():
        message_id = await backend.client.send(
            queue,
            message.body,
            headers=message.headers,
            group=message.group,
            delay=message.delay,
            priority=message.priority,
            expires_in=message.expires_in,
            max_attempts=message.max_attempts,
            dedup_id=known_by.ids[0],
            dedup_for=known_by.seconds,
            fingerprint=known_by.fingerprint,
            ordered=message.ordered,
            dedup_until=known_by.until,
            on_duplicate=known_by.on_duplicate,
        )
    return reply(201, message_id=message_id)


@routes.post("/queues/{queue}/messages/batch", status=201, answer=SentMessages, errors=(409,))
async def send_batch(
    queue: QueueName,
    batch: NewMessages,
    backend: Backend,
    caller: MaySend,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Send messages, all or none."""
    known_by = _known_by(caller, batch, batch.messages, idempotency_key)
    # Neighbours with equal options are sent together, so that ids are assigned in the order of the request.
    numbered = list(zip(batch.messages, known_by.ids, strict=True))
    runs = [list(run) for _, run in groupby(numbered, key=lambda pair: pair[0].alike)]
    with _refused_if_reused():
        if len(runs) == 1:
            ids = await _send_alike(backend.client, queue, runs[0], known_by, batch.ordered)
        else:
            ids = []
            async with backend.client.transaction() as client:
                for run in runs:
                    ids += await _send_alike(client, queue, run, known_by, batch.ordered)
    written = ",".join([f'{{"message_id":{message_id}}}' for message_id in ids])
    return JsonText(f'{{"results":[{written}]}}', 201)


async def _send_alike(
    client: Any, queue: str, run: Sequence[tuple[NewMessage, str | None]], known_by: KnownBy, ordered: bool
) -> list[int]:
    first = run[0][0]
    messages = [message for message, _ in run]
    dedup_ids = [dedup_id for _, dedup_id in run]
    is_known = any(dedup_id is not None for dedup_id in dedup_ids)
    ids: list[int] = await client.send_batch(
        queue,
        [message.body for message in messages],
        headers=[message.headers for message in messages] if any(m.headers for m in messages) else None,
        group=[message.group for message in messages] if any(m.group is not None for m in messages) else None,
        delay=first.delay,
        priority=first.priority,
        expires_in=first.expires_in,
        max_attempts=first.max_attempts,
        dedup_ids=dedup_ids if is_known else None,
        dedup_for=known_by.seconds,
        fingerprint=known_by.fingerprint,
        ordered=ordered,
        dedup_until=known_by.until if is_known else None,
        on_duplicate=known_by.on_duplicate if is_known else "keep",
    )
    return ids


def _known_by(
    caller: Caller, request: SingleMessage | NewMessages, messages: Sequence[NewMessage], key: str | None
) -> KnownBy:
    if key is None:
        ids = [message.dedup_id for message in messages]
        if request.dedup_until is not None and not any(ids):
            raise invalid("dedup_until needs a dedup_id")
        return KnownBy(ids, request.dedup_for, until=request.dedup_until, on_duplicate=request.on_duplicate)
    if any(message.dedup_id is not None for message in messages):
        raise invalid("an Idempotency-Key and a dedup_id cannot be used together")
    if request.dedup_until is not None or request.on_duplicate != "keep":
        raise invalid("an Idempotency-Key cannot be used together with dedup_until or on_duplicate")
    # Separate from the ids that senders choose and from other tokens' keys; one for each message of a batch.
    # Hashed, because a name and a key together may exceed the length of an id.
    whose = sha256(json.dumps([caller.name, key]).encode()).hexdigest()
    keys = [f"idempotency-key {number} {whose}" for number in range(len(messages))]
    return KnownBy(keys, IDEMPOTENT_SECONDS, _fingerprint(request))


def _fingerprint(request: SingleMessage | NewMessages) -> str:
    """Return a hash of the content of a request, which depends on the layout of large bodies only."""
    try:
        text = json.dumps(request, default=_members, sort_keys=True)
    except RecursionError as error:
        raise invalid("the body is nested too deeply") from error
    return sha256(text.encode()).hexdigest()


def _members(value: Any) -> Any:
    if isinstance(value, RawJson):
        if len(value.text) > COMPARED_BYTES_MAX:
            return sha256(str(value).encode()).hexdigest()
        # A number keeps its digits, and is not a string; no body that is stored has such a key.
        return json.loads(value.text, parse_float=_number, parse_int=_number)
    return asdict(value) if isinstance(value, Struct) else str(value)


def _number(digits: str) -> dict[str, str]:
    return {"\0": digits}


@contextmanager
def _refused_if_reused() -> Iterator[None]:
    try:
        yield
    except DedupIdReusedError as error:
        raise Refusal(
            422,
            "idempotency_key_reused",
            "this Idempotency-Key was sent with another request; nothing was sent",
            hint="Use a new key for a new request, and repeat a request unchanged.",
        ) from error
