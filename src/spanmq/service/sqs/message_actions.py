"""The actions of messages: send, receive, delete, hide for longer; one by one and in batches."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from spanmq.errors import InvalidArgumentError, QueueNotFoundError, SpanmqError
from spanmq.message import Message
from spanmq.service import receipt
from spanmq.service.receipt import Receipt
from spanmq.service.receiving import disconnected
from spanmq.service.sqs import digest
from spanmq.service.sqs.call import Call
from spanmq.service.sqs.message import (
    SYSTEM_ATTRIBUTES,
    check_attributes,
    check_text,
    headers_of,
    id_of,
    moved_headers,
    received,
    sequence_number,
)
from spanmq.service.sqs.queue import QueueView, Redrive
from spanmq.service.sqs.refusal import SqsError, bad_value, no_queue, unsupported
from spanmq.service.tracing import in_own_trace

BATCH_MAX: Final = 10
BATCH_BYTES_MAX: Final = 1_048_576
# SQS knows a message again for five minutes.
DEDUP_SECONDS: Final = 300.0
# Messages that one receive moves to the queue of dead letters at most, before it gives what it has.
MOVED_MAX: Final = 100
HIDDEN_MAX: Final = 43_200
_ENTRY_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,80}")
_FIFO_ID: Final = re.compile(r"[!-~]{1,128}")

Values = dict[str, Any]


async def send_message(call: Call) -> Values:
    """Send a message."""
    queue = await call.queue("send")
    _measure(call.values, queue)
    return await _send(call, call.backend.client, queue, call.values)


async def send_message_batch(call: Call) -> Values:
    """Send up to ten messages; each has a result of its own."""
    queue = await call.queue("send")
    entries = _entries(call)
    if sum(len(entry["MessageBody"].encode()) for entry in entries) > BATCH_BYTES_MAX:
        raise SqsError("BatchRequestTooLong", f"Batch requests have {BATCH_BYTES_MAX} bytes at most.")

    async def send(entry: Values) -> Values:
        _measure(entry, queue)
        return await _send(call, call.backend.client, queue, entry)

    return await _each(entries, send)


async def receive_message(call: Call) -> Values:
    """Receive up to ten messages, each under a lease of its own."""
    queue = await call.queue("receive")
    quantity = call.values.get("MaxNumberOfMessages", 1)
    wait = call.values.get("WaitTimeSeconds", queue.number("ReceiveMessageWaitTimeSeconds"))
    hidden = call.values.get("VisibilityTimeout", queue.number("VisibilityTimeout"))
    system = [*call.values.get("AttributeNames", []), *call.values.get("MessageSystemAttributeNames", [])]
    if not 1 <= quantity <= BATCH_MAX:
        raise bad_value(f"MaxNumberOfMessages must be between 1 and {BATCH_MAX}, if provided.")
    if not 0 <= wait <= 20 or not 0 <= hidden <= HIDDEN_MAX:
        raise bad_value("WaitTimeSeconds is of 0 to 20, VisibilityTimeout of 0 to 43200.")
    if unknown := [name for name in system if name not in (*SYSTEM_ATTRIBUTES, "All")]:
        raise SqsError("InvalidAttributeName", f"Unknown Attribute {unknown[0][:80]}.")
    if call.values.get("ReceiveRequestAttemptId"):
        raise unsupported("ReceiveRequestAttemptId")

    async def take() -> list[Message]:
        return await _take(call, queue, quantity, float(hidden))

    messages = await take()
    if not messages and wait and not call.backend.is_stopping:
        with call.backend.gate.aside(call.caller):
            gone = disconnected(call.request)
            messages = await call.backend.waiting.wait(queue.name, in_own_trace(take), float(wait), gone)
    names = call.values.get("MessageAttributeNames", [])
    shown = [received(each, arn_of=call.arn_of, system=system, names=names) for each in messages]
    return {"Messages": shown} if shown else {}


async def delete_message(call: Call) -> Values:
    """Settle a message. One that is held by another meanwhile stays, and that is no error, as in SQS."""
    queue = await call.queue("receive")
    await _delete(call, queue, call.values["ReceiptHandle"])
    return {}


async def delete_message_batch(call: Call) -> Values:
    """Settle up to ten messages."""
    queue = await call.queue("receive")

    async def delete(entry: Values) -> Values:
        await _delete(call, queue, entry["ReceiptHandle"])
        return {}

    return await _each(_entries(call), delete)


async def change_message_visibility(call: Call) -> Values:
    """Hide a message for so long from now on; 0 shows it."""
    queue = await call.queue("receive")
    await _hide(call, queue, call.values["ReceiptHandle"], call.values["VisibilityTimeout"])
    return {}


async def change_message_visibility_batch(call: Call) -> Values:
    """Do that to up to ten messages."""
    queue = await call.queue("receive")

    async def hide(entry: Values) -> Values:
        await _hide(call, queue, entry["ReceiptHandle"], entry.get("VisibilityTimeout", 0))
        return {}

    return await _each(_entries(call), hide)


# One message.


async def _send(call: Call, client: Any, queue: QueueView, values: Values) -> Values:
    text, group = values["MessageBody"], values.get("MessageGroupId")
    dedup_id = _dedup_id(queue, values)
    if group is not None and not _FIFO_ID.fullmatch(group):
        raise bad_value("MessageGroupId can only include alphanumeric and punctuation characters, 1 to 128.")
    delay = values.get("DelaySeconds")
    if queue.is_fifo and delay is not None:
        raise bad_value("DelaySeconds is of the queue, not of a message, in a FIFO queue.")
    if delay is not None and not 0 <= delay <= 900:
        raise bad_value("DelaySeconds is of 0 to 900.")
    known_by = dedup_id
    if dedup_id is not None and queue.choice("DeduplicationScope") == "messageGroup":
        known_by = f"{group} {dedup_id}"
    message_id = await client.send(
        queue.name,
        text,
        headers=headers_of(values, call.caller.name, dedup_id),
        group=group,
        delay=(queue.number("DelaySeconds") if delay is None else delay) or None,
        expires_in=float(queue.number("MessageRetentionPeriod")),
        dedup_id=known_by,
        dedup_for=DEDUP_SECONDS,
        ordered=queue.is_fifo,
    )
    result = {"MessageId": id_of(queue.name, message_id), "MD5OfMessageBody": digest.of_body(text)}
    if attributes := digest.of_attributes(values.get("MessageAttributes", {})):
        result["MD5OfMessageAttributes"] = attributes
    if system := digest.of_attributes(values.get("MessageSystemAttributes", {})):
        result["MD5OfMessageSystemAttributes"] = system
    if queue.is_fifo:
        result["SequenceNumber"] = sequence_number(message_id)
    return result


def _dedup_id(queue: QueueView, values: Values) -> str | None:
    given: str | None = values.get("MessageDeduplicationId")
    if not queue.is_fifo:
        if given is not None:
            raise bad_value("MessageDeduplicationId is for FIFO queues.")
        return None
    if not values.get("MessageGroupId"):
        raise SqsError("MissingParameter", "The request must contain the parameter MessageGroupId.")
    if given is not None:
        if not _FIFO_ID.fullmatch(given):
            raise bad_value(
                "MessageDeduplicationId can only include alphanumeric and punctuation characters, 1 to 128."
            )
        return given
    if queue.choice("ContentBasedDeduplication") != "true":
        raise bad_value(
            "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId"
            " provided explicitly"
        )
    return hashlib.sha256(values["MessageBody"].encode()).hexdigest()


def _measure(values: Values, queue: QueueView) -> None:
    """Raise an SqsError for a message that is too large, or holds what SQS refuses."""
    check_text(values["MessageBody"])
    size = len(values["MessageBody"].encode()) + check_attributes(values.get("MessageAttributes", {}))
    if size > (most := queue.number("MaximumMessageSize")):
        raise bad_value(f"One or more parameters are invalid: a message has {most} bytes at most.")


async def _take(call: Call, queue: QueueView, quantity: int, hidden: float) -> list[Message]:
    """Receive messages; those that were received too often go to the queue of dead letters instead.

    Each has a lease of its own, since in SQS each can be hidden for longer by itself. All in one transaction:
    what is moved is in exactly one queue whatever happens.
    """
    messages: list[Message] = []
    moved = 0
    redrive = queue.redrive
    async with call.backend.client.transaction() as client:
        while len(messages) < quantity and moved < MOVED_MAX:
            found = await client.receive(queue.name, 1, lease=hidden)
            if not found:
                break
            if redrive is not None and found[0].attempt > redrive.receives_max:
                moved += await _move(client, found[0], redrive)
            else:
                messages += found
    return messages


async def _move(client: Any, message: Message, redrive: Redrive) -> int:
    try:
        [known] = await client.list_sqs_queues(redrive.queue)
    except QueueNotFoundError as error:
        raise no_queue() from error
    await client.send(
        redrive.queue,
        message.body,
        headers=moved_headers(message, message.queue),
        group=message.group,
        expires_in=float(QueueView(known).number("MessageRetentionPeriod")),
        ordered=redrive.queue.endswith(".fifo"),
    )
    await client.ack(message)
    return 1


async def _delete(call: Call, queue: QueueView, handle: str) -> None:
    held = _receipt(queue, handle)
    await call.backend.client.ack_lease(queue.name, held.lease_id, held.message_id)


async def _hide(call: Call, queue: QueueView, handle: str, seconds: int) -> None:
    held = _receipt(queue, handle)
    if not 0 <= seconds <= HIDDEN_MAX:
        raise bad_value("VisibilityTimeout is of 0 to 43200.")
    client = call.backend.client
    if seconds:
        is_held = await client.extend(queue.name, held.lease_id, float(seconds)) > 0
    else:
        [settled] = await client.nack_lease(queue.name, held.lease_id, held.message_id, retry_in=0.0)
        is_held = settled.outcome != "stale"
    if not is_held:
        raise SqsError("MessageNotInflight", "The message is not in flight: another holds it, or nobody.")


def _receipt(queue: QueueView, handle: str) -> Receipt:
    try:
        held = receipt.read(handle)
    except InvalidArgumentError as error:
        raise SqsError("ReceiptHandleIsInvalid", "The input receipt handle is invalid.") from error
    if held.queue.lower() != queue.name.lower():
        raise SqsError("ReceiptHandleIsInvalid", "The receipt handle is of another queue.")
    return held


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
            "A batch entry id can only contain alphanumeric characters, hyphens and underscores, 1 to 80.",
        )
    if len(set(ids)) < len(ids):
        raise SqsError("BatchEntryIdsNotDistinct", "Two or more batch entries have the same Id.")
    return entries


async def _each(entries: Sequence[Values], act: Callable[[Values], Awaitable[Values]]) -> Values:
    successful: list[Values] = []
    failed: list[Values] = []
    for entry in entries:
        try:
            successful.append({"Id": entry["Id"], **await act(entry)})
        except SqsError as fault:
            failed.append(
                {
                    "Id": entry["Id"],
                    "Code": fault.code,
                    "Message": fault.message,
                    "SenderFault": fault.is_sender,
                }
            )
        except SpanmqError as error:
            if not successful:
                raise
            # What was done is done: the rest failed, and may be tried again.
            failed.append(
                {
                    "Id": entry["Id"],
                    "Code": "ServiceUnavailable",
                    "Message": type(error).__name__,
                    "SenderFault": False,
                }
            )
    return {"Successful": successful, "Failed": failed}
