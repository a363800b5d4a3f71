"""The actions on messages: send, receive, delete, change visibility; single and in batches."""

import hashlib
import logging
import re
from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from spanmq.errors import (
    InvalidBodyError,
    MissingPrivilegeError,
    NotPossibleError,
    QueueFullError,
    QueueNotFoundError,
    SpanmqError,
)
from spanmq.model import Leased, Message
from spanmq_service.guard.access import hung_up
from spanmq_service.routes.receiving import fitting, written
from spanmq_service.sqs import store
from spanmq_service.sqs.call import Call
from spanmq_service.sqs.message import (
    SYSTEM_ATTRIBUTES,
    check_attributes,
    check_text,
    digest_of_attributes,
    digest_of_body,
    headers_of,
    id_of,
    is_fifo_id,
    is_moved,
    may_have_expired,
    read_handle,
    received,
    sequence_number,
    size_of,
)
from spanmq_service.sqs.queue import QueueView, RedrivePolicy
from spanmq_service.sqs.refusal import SqsError, bad_parameter, bad_value, no_parameter
from spanmq_service.sqs.store import SqsOrigin
from spanmq_service.waiting import in_own_trace

logger = logging.getLogger("spanmq.service")

BATCH_MAX: Final = 10
BATCH_BYTES_MAX: Final = 1_048_576
# SQS deduplicates for five minutes.
DEDUP_SECONDS: Final = 300.0
# The number of messages that one receive moves to the dead-letter queue before it returns the others.
MOVED_MAX: Final = 100
HIDDEN_MAX: Final = 43_200
WAIT_MAX: Final = 20
DELAY_MAX: Final = 900
# Errors after which messages stay in their queue although they were received too often.
UNMOVABLE: Final = (
    InvalidBodyError,
    MissingPrivilegeError,
    NotPossibleError,
    QueueFullError,
    QueueNotFoundError,
)
# The states of messages that a receive may return, now or later.
IN_QUEUE: Final = ("pending", "processing", "delayed", "failed")
_ENTRY_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,80}")

Values = dict[str, Any]
# The result of one entry of a batch.
Outcome = Values | SqsError
Key = TypeVar("Key", bound=Hashable)


async def send_message(call: Call) -> Values:
    """Send a message."""
    queue = await call.queue("send")
    return _only(await _send(call, queue, _delay(call, queue, call.values), [call.values]))


async def send_message_batch(call: Call) -> Values:
    """Send up to ten messages; each has its own result."""
    queue = await call.queue("send")
    entries = _entries(call)
    if (size := sum(map(size_of, entries))) > BATCH_BYTES_MAX:
        raise SqsError(
            "BatchRequestTooLong",
            f"Batch requests cannot be longer than {BATCH_BYTES_MAX} bytes. You have sent {size} bytes.",
        )
    for entry in entries:
        # An entry of a FIFO queue without its ids refuses the whole batch, as in AWS.
        _dedup_id(call, queue, entry, missing=bad_value)
    return await _together(entries, partial(_delay, call, queue), partial(_send, call, queue))


async def receive_message(call: Call) -> Values:
    """Receive up to ten messages."""
    queue = await call.queue("receive")
    quantity = call.values.get("MaxNumberOfMessages", 1)
    wait = call.values.get("WaitTimeSeconds", queue.number("ReceiveMessageWaitTimeSeconds"))
    hidden = call.values.get("VisibilityTimeout", queue.number("VisibilityTimeout"))
    system = [*call.values.get("AttributeNames", []), *call.values.get("MessageSystemAttributeNames", [])]
    if not 1 <= quantity <= BATCH_MAX:
        raise bad_parameter(
            "MaxNumberOfMessages", quantity, f"Must be between 1 and {BATCH_MAX}, if provided."
        )
    if not 0 <= wait <= WAIT_MAX:
        raise bad_parameter("WaitTimeSeconds", wait, f"Must be >= 0 and <= {WAIT_MAX}, if provided.")
    _check_hidden(hidden)
    if unknown := [name for name in system if name not in (*SYSTEM_ATTRIBUTES, "All")]:
        raise SqsError("InvalidAttributeName", f"Unknown Attribute {unknown[0][:80]}.")
    # Without effect: messages of a lost response are received again after their visibility timeout.
    if (attempt := call.values.get("ReceiveRequestAttemptId")) is not None and not (
        queue.is_fifo and is_fifo_id(attempt)
    ):
        raise bad_parameter("ReceiveRequestAttemptId", attempt, f"It is for FIFO queues. {_fifo_rule('It')}")

    async def take() -> list[Message]:
        return await fitting(lambda most: _take(call, queue, most, float(hidden)), quantity)

    messages = await take()
    if not messages and wait and not call.backend.is_stopping:
        with call.backend.gate.as_waiting(call.request.scope, call.caller):
            gone = hung_up(call.request)
            messages = await call.backend.waiting.wait(
                queue.name,
                in_own_trace(take),
                float(wait),
                gone,
                permit=partial(call.still_may, "receive", queue.name),
            )
    if queue.is_fifo:
        messages = _by_group(messages)
    names = call.values.get("MessageAttributeNames", [])
    with call.backend.waiting.claimed(messages):
        await call.backend.gate.acquire(call.request.scope, call.caller)
        origins = await _origins(call, queue, messages)

        def show(message: Message) -> Values:
            origin = origins.get(message.message_id)
            return received(message, origin, arn_of=call.arn_of, system=system, names=names)

        shown = await written(call.backend, messages, show)
    return {"Messages": shown} if shown else {}


async def delete_message(call: Call) -> Values:
    """Settle a message. As in SQS, it is not an error if another receiver holds the message now: it stays.

    In a FIFO queue that is an error, and so is a handle whose visibility timeout has ended.
    """
    queue = await call.queue("receive")
    lease_id = read_handle(queue, call.values["ReceiptHandle"]).lease_id
    return _only(await _delete(call, queue, lease_id, [call.values]))


async def delete_message_batch(call: Call) -> Values:
    """Settle up to ten messages."""
    queue = await call.queue("receive")

    def read(entry: Values) -> int:
        return read_handle(queue, entry["ReceiptHandle"]).lease_id

    return await _together(_entries(call), read, partial(_delete, call, queue))


async def change_message_visibility(call: Call) -> Values:
    """Hide a message for a time from now on; 0 makes it visible."""
    queue = await call.queue("receive")
    return _only(await _hide(call, queue, _visibility(queue, call.values), [call.values]))


async def change_message_visibility_batch(call: Call) -> Values:
    """Change the visibility of up to ten messages."""
    queue = await call.queue("receive")

    return await _together(_entries(call), partial(_visibility, queue), partial(_hide, call, queue))


# Single messages.


def _delay(call: Call, queue: QueueView, values: Values) -> int:
    """Return the delay of a message; raises an SqsError for a message that SQS refuses."""
    _measure(values, queue)
    group, delay = values.get("MessageGroupId"), values.get("DelaySeconds")
    _dedup_id(call, queue, values)
    if group is not None and not is_fifo_id(group):
        raise bad_parameter("MessageGroupId", group, _fifo_rule("MessageGroupId"))
    if queue.is_fifo and delay:
        raise bad_parameter(
            "DelaySeconds", delay, "The request include parameter that is not valid for this queue type."
        )
    if delay is not None and not 0 <= delay <= DELAY_MAX:
        raise bad_parameter("DelaySeconds", delay, f"DelaySeconds must be >= 0 and <= {DELAY_MAX}.")
    headers_of(values, None)
    # In a FIFO queue, 0 stands for the delay of the queue, as in AWS.
    return queue.number("DelaySeconds") if delay is None or queue.is_fifo else int(delay)


async def _send(call: Call, queue: QueueView, delay: int, entries: list[Values]) -> list[Outcome]:
    """Send messages with the same delay, all or none."""
    dedup_ids = [_dedup_id(call, queue, values) for values in entries]
    is_by_group = queue.choice("DeduplicationScope") == "messageGroup"
    trace = call.request.headers.get("x-amzn-trace-id")
    message_ids = await call.backend.client.send_batch(
        queue.name,
        [values["MessageBody"] for values in entries],
        headers=[
            headers_of(values, dedup_id, trace) or None
            for values, dedup_id in zip(entries, dedup_ids, strict=True)
        ],
        group=[values.get("MessageGroupId") for values in entries],
        delay=delay or None,
        expires_in=float(queue.number("MessageRetentionPeriod")),
        dedup_ids=[
            f"{values.get('MessageGroupId')} {dedup_id}" if is_by_group and dedup_id is not None else dedup_id
            for values, dedup_id in zip(entries, dedup_ids, strict=True)
        ]
        if queue.is_fifo
        else None,
        dedup_for=DEDUP_SECONDS,
        ordered=queue.is_fifo,
    )
    return [_sent(queue, values, message_id) for values, message_id in zip(entries, message_ids, strict=True)]


def _sent(queue: QueueView, values: Values, message_id: int) -> Values:
    result = {
        "MessageId": id_of(queue.name, message_id),
        "MD5OfMessageBody": digest_of_body(values["MessageBody"]),
    }
    if attributes := digest_of_attributes(values.get("MessageAttributes", {})):
        result["MD5OfMessageAttributes"] = attributes
    if system := digest_of_attributes(values.get("MessageSystemAttributes", {})):
        result["MD5OfMessageSystemAttributes"] = system
    if queue.is_fifo:
        result["SequenceNumber"] = sequence_number(message_id)
    return result


def _dedup_id(
    call: Call, queue: QueueView, values: Values, missing: Callable[[str], SqsError] = no_parameter
) -> str | None:
    dedup_id: str | None = values.get("MessageDeduplicationId")
    if dedup_id is not None and not is_fifo_id(dedup_id):
        raise bad_parameter("MessageDeduplicationId", dedup_id, _fifo_rule("MessageDeduplicationId"))
    if not queue.is_fifo:
        if dedup_id is not None:
            raise bad_parameter(
                "MessageDeduplicationId",
                dedup_id,
                "The request include parameter that is not valid for this queue type.",
            )
        return None
    if not values.get("MessageGroupId"):
        raise missing("The request must contain the parameter MessageGroupId.")
    if dedup_id is not None:
        return dedup_id
    if queue.choice("ContentBasedDeduplication") != "true":
        raise bad_value(
            "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId"
            " provided explicitly"
        )
    body: str = values["MessageBody"]
    if (encryption := call.backend.encryption) is not None:
        return encryption.fingerprint(body, queue.name)
    return hashlib.sha256(body.encode()).hexdigest()


def _fifo_rule(name: str) -> str:
    return f"{name} can only include alphanumeric and punctuation characters. 1 to 128 in length."


def _check_hidden(seconds: int) -> None:
    if not 0 <= seconds <= HIDDEN_MAX:
        raise bad_parameter("VisibilityTimeout", seconds, f"Must be >= 0 and <= {HIDDEN_MAX}, if provided.")


def _measure(values: Values, queue: QueueView) -> None:
    """Raise an SqsError for a message that is too large or that SQS refuses."""
    check_text(values["MessageBody"])
    size = len(values["MessageBody"].encode()) + check_attributes(values.get("MessageAttributes", {}))
    if size > (most := queue.number("MaximumMessageSize")):
        raise bad_value(
            f"One or more parameters are invalid. Reason: Message must be shorter than {most} bytes."
        )


async def _take(call: Call, queue: QueueView, quantity: int, hidden: float) -> list[Message]:
    """Receive messages by one claim, and move those that were received too often to the dead-letter queue.

    Each has a lease of its own, because messages are deleted and hidden one by one. A move settles a message
    under that lease, so it is in exactly one queue; after a crash between the claim and the move it is received,
    and moved, later. A message that cannot be moved (the other queue is full, was dropped or takes no such
    body, or the role that set the policy may no longer send there) is received once more. Claims again only
    where all were moved: what is not hidden would come twice.
    """
    client, redrive, moved = call.backend.client, queue.redrive, 0
    while True:
        messages = await client.receive(queue.name, quantity, lease=hidden, slots=quantity)
        if redrive is None:
            return messages
        most = redrive.receives_max
        gone = await _moved(call, [message for message in messages if message.attempt > most], redrive)
        moved += len(gone)
        messages = [message for message in messages if message.message_id not in gone]
        if messages or not gone or moved >= MOVED_MAX:
            return messages


def _by_group(messages: list[Message]) -> list[Message]:
    """Return messages group by group, that of the first message first."""
    groups = list(dict.fromkeys(message.group for message in messages))
    return sorted(messages, key=lambda message: groups.index(message.group))


async def _moved(call: Call, spent: list[Message], redrive: RedrivePolicy) -> set[int]:
    """Move messages to the dead-letter queue, all or none, and return the ids of those that were moved."""
    if not spent:
        return set()
    try:
        async with call.backend.client.transaction() as client:
            [known] = await store.list_queues(client, redrive.queue)
            return set(
                await store.move_messages(
                    client,
                    call.backend.encryption,
                    spent,
                    redrive.queue,
                    expires_in=float(QueueView(known).number("MessageRetentionPeriod")),
                )
            )
    except UNMOVABLE as error:
        logger.warning(
            "redrive_refused source=%s destination=%s error=%s",
            spent[0].queue,
            redrive.queue,
            type(error).__name__,
        )
        return set()


async def _origins(call: Call, queue: QueueView, messages: list[Message]) -> dict[int, SqsOrigin]:
    """Return the source queues of moved messages, by id."""
    moved = [message.message_id for message in messages if is_moved(message)]
    origins = await store.list_moved(call.backend.client, queue.name, moved) if moved else []
    return {origin.message_id: origin for origin in origins}


def _visibility(queue: QueueView, values: Values) -> tuple[int, int]:
    """Return the lease of a message, and for how long to hide it."""
    seconds = values.get("VisibilityTimeout", 0)
    held = read_handle(queue, values["ReceiptHandle"])
    _check_hidden(seconds)
    return held.lease_id, seconds


async def _hide(
    call: Call, queue: QueueView, lease_and_seconds: tuple[int, int], entries: list[Values]
) -> list[Outcome]:
    """Change the visibility of messages of one lease."""
    lease_id, seconds = lease_and_seconds
    ids = [read_handle(queue, entry["ReceiptHandle"]).message_id for entry in entries]
    client = call.backend.client
    if seconds:
        settled = await client.extend(Leased(queue.name, lease_id, ids), float(seconds), shorten=True)
    else:
        settled = await client.nack(Leased(queue.name, lease_id, ids), retry_in=0.0)
    stale = {result.message_id for result in settled if result.outcome == "stale"}
    return [
        bad_parameter(
            "ReceiptHandle",
            entry["ReceiptHandle"],
            "Message does not exist or is not available for visibility timeout change.",
        )
        if message_id in stale
        else {}
        for entry, message_id in zip(entries, ids, strict=True)
    ]


async def _delete(call: Call, queue: QueueView, lease_id: int, entries: list[Values]) -> list[Outcome]:
    """Settle messages of one lease."""
    handles = [entry["ReceiptHandle"] for entry in entries]
    ids = [read_handle(queue, handle).message_id for handle in handles]
    if not queue.is_fifo:
        await call.backend.client.ack(Leased(queue.name, lease_id, ids))
        return [{} for _ in entries]
    expired = {
        message_id
        for handle, message_id in zip(handles, ids, strict=True)
        if may_have_expired(handle) and await _is_left(call, queue, message_id, "pending", "failed")
    }
    live = [message_id for message_id in ids if message_id not in expired]
    settled = await call.backend.client.ack(Leased(queue.name, lease_id, live)) if live else []
    for result in settled:
        if result.outcome == "stale" and await _is_left(call, queue, result.message_id, *IN_QUEUE):
            expired.add(result.message_id)
    return [
        bad_parameter("ReceiptHandle", handle, "The receipt handle has expired.")
        if message_id in expired
        else {}
        for handle, message_id in zip(handles, ids, strict=True)
    ]


async def _is_left(call: Call, queue: QueueView, message_id: int, *states: str) -> bool:
    return await call.backend.client.inspect.state(queue.name, message_id) in states


# Batches.


def _entries(call: Call) -> list[Values]:
    entries: list[Values] = call.values.get("Entries") or []
    if not entries:
        raise SqsError("EmptyBatchRequest", "There should be at least one entry in the request.")
    if len(entries) > BATCH_MAX:
        raise SqsError(
            "TooManyEntriesInBatchRequest",
            f"Maximum number of entries per request are {BATCH_MAX}. You have sent {len(entries)}.",
        )
    ids = [entry["Id"] for entry in entries]
    if not all(map(_ENTRY_ID.fullmatch, ids)):
        raise SqsError(
            "InvalidBatchEntryId",
            "A batch entry id can only contain alphanumeric characters, hyphens and underscores."
            " It can be at most 80 letters long.",
        )
    if len(set(ids)) < len(ids):
        raise SqsError("BatchEntryIdsNotDistinct", "Two or more batch entries have the same Id.")
    return entries


async def _together(
    entries: Sequence[Values],
    read: Callable[[Values], Key],
    act: Callable[[Key, list[Values]], Awaitable[list[Outcome]]],
) -> Values:
    """Process entries, those with the same key by one call; return a result for each, in order."""
    outcomes: dict[str, Outcome] = {}
    groups: dict[Key, list[Values]] = {}
    for entry in entries:
        try:
            groups.setdefault(read(entry), []).append(entry)
        except SqsError as fault:
            outcomes[entry["Id"]] = fault
    for key, group in groups.items():
        ids = [entry["Id"] for entry in group]
        try:
            outcomes.update(zip(ids, await act(key, group), strict=True))
        except SpanmqError as error:
            if not any(isinstance(outcome, dict) for outcome in outcomes.values()):
                raise
            # Completed entries keep their results; the others failed, and may be retried.
            failed = SqsError("ServiceUnavailable", type(error).__name__, is_sender=False)
            outcomes.update(dict.fromkeys(ids, failed))
    return _results(entries, outcomes)


def _only(outcomes: list[Outcome]) -> Values:
    """Return the result of a call for one message."""
    [outcome] = outcomes
    if isinstance(outcome, SqsError):
        raise outcome
    return outcome


def _results(entries: Sequence[Values], outcomes: dict[str, Outcome]) -> Values:
    successful: list[Values] = []
    failed: list[Values] = []
    for entry_id in (entry["Id"] for entry in entries):
        outcome = outcomes[entry_id]
        if isinstance(outcome, SqsError):
            failed.append(
                {
                    "Id": entry_id,
                    "Code": outcome.code,
                    "Message": outcome.message,
                    "SenderFault": outcome.is_sender,
                }
            )
        else:
            successful.append({"Id": entry_id, **outcome})
    # Empty lists are left out, as in AWS: programs ask `if "Failed" in answer`.
    return {name: results for name, results in (("Successful", successful), ("Failed", failed)) if results}
