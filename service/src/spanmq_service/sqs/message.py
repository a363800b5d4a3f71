"""A message as SQS sees it: its body is a JSON string in the queue, its attributes are headers.

Its receipt handle is a receipt, which in a FIFO queue also says when the visibility timeout ends.

Senders that do not use SQS write headers and bodies freely. So everything read here is checked, and a value
that SQS cannot represent is left out or escaped: a message never makes a receive fail.
"""

import base64
import hashlib
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID, uuid5

from spanmq.codec import RawJson
from spanmq.errors import InvalidArgumentError
from spanmq.model import Message, folded
from spanmq_service import receipt
from spanmq_service.receipt import Receipt
from spanmq_service.sqs.queue import ACCOUNT, QueueView
from spanmq_service.sqs.refusal import SqsError, bad_value, unsupported
from spanmq_service.sqs.store import SqsOrigin

ATTRIBUTES: Final = "x-sqs-attributes"
TRACE: Final = "x-sqs-trace"
DEDUP: Final = "x-sqs-dedup"
# A hint that the database knows the message's source queue. Any sender may write it: it proves nothing.
MOVED: Final = "x-sqs-moved"

ATTRIBUTES_MAX: Final = 10
# A longer header of a request is not a trace.
TRACE_MAX: Final = 1_024
SYSTEM_ATTRIBUTES: Final = (
    *("SenderId", "SentTimestamp", "ApproximateReceiveCount", "ApproximateFirstReceiveTimestamp"),
    *("SequenceNumber", "MessageDeduplicationId", "MessageGroupId", "AWSTraceHeader"),
    "DeadLetterQueueSourceArn",
)
# SQS refuses characters that XML 1.0 cannot represent.
FORBIDDEN: Final = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# AWS accepts letters of any alphabet, although its reference names A to Z only.
_ATTRIBUTE_NAME: Final = re.compile(r"(?!(?i:aws\.|amazon\.))(?!\.)(?!.*\.\.)[\w.-]{1,256}(?<!\.)")
_DATA_TYPE: Final = re.compile(r"(String|Number|Binary)(\.[^\s]{1,240})?")
_NUMBER: Final = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")
_FIFO_ID: Final = re.compile(r"[!-~]{1,128}")
_IDS: Final = UUID("7d0b8b5c-9e0f-5d53-9a0e-6d5f6f2f7a11")


def id_of(queue: str, message_id: int) -> str:
    """Return the MessageId of a message: the same at each call."""
    return str(uuid5(_IDS, f"{queue}/{message_id}"))


def check_text(text: str) -> None:
    """Raise an SqsError for a body that SQS refuses."""
    if not text:
        raise SqsError("MissingParameter", "The request must contain the parameter MessageBody.")
    if FORBIDDEN.search(text):
        raise SqsError("InvalidMessageContents", "Invalid characters found in the message body.")


def check_attributes(attributes: Mapping[str, Mapping[str, Any]]) -> int:
    """Return the size of message attributes in bytes; raises an SqsError for attributes that SQS refuses."""
    if len(attributes) > ATTRIBUTES_MAX:
        raise bad_value(f"A message has {ATTRIBUTES_MAX} attributes at most.")
    size = 0
    for name, value in attributes.items():
        if not _ATTRIBUTE_NAME.fullmatch(name):
            raise bad_value(f"{name[:80]!r} is not a valid name of a message attribute.")
        kind = value.get("DataType", "")
        if not _DATA_TYPE.fullmatch(kind):
            raise bad_value(f"The message attribute {name!r} has an invalid DataType.")
        names = {key for key, content in value.items() if content is not None} - {"DataType"}
        value_name = "BinaryValue" if kind.startswith("Binary") else "StringValue"
        if not value.get(value_name):
            raise bad_value(
                f"Message (user) attribute '{name}' must contain a non-empty value of type '{kind.split('.')[0]}'."
            )
        if names != {value_name}:
            raise bad_value(f"The message attribute {name!r} must have a {value_name} only.")
        if kind.startswith("Number") and not _NUMBER.fullmatch(value[value_name]):
            raise bad_value(f"The message attribute {name!r} is not a number.")
        if value_name == "StringValue" and FORBIDDEN.search(value[value_name]):
            raise bad_value(f"Invalid characters found in the value of the message attribute {name!r}.")
        content = value[value_name] if value_name == "BinaryValue" else value[value_name].encode()
        size += len(name.encode()) + len(kind.encode()) + len(content)
    return size


def size_of(values: Mapping[str, Any]) -> int:
    """Return the bytes of a message with its attributes, valid or not."""
    size = len(values["MessageBody"].encode())
    for name, value in values.get("MessageAttributes", {}).items():
        texts = (name, value.get("DataType") or "", value.get("StringValue") or "")
        size += sum(len(text.encode()) for text in texts) + len(value.get("BinaryValue") or b"")
    return size


def is_fifo_id(text: object) -> bool:
    """Return whether a string can be a MessageGroupId or a MessageDeduplicationId."""
    return isinstance(text, str) and _FIFO_ID.fullmatch(text) is not None


def headers_of(values: Mapping[str, Any], dedup_id: str | None, trace: str | None = None) -> dict[str, Any]:
    """Return the headers of a message that is sent; `trace` is the request's header X-Amzn-Trace-Id."""
    headers: dict[str, Any] = {}
    if dedup_id is not None:
        headers[DEDUP] = dedup_id
    if trace is not None and len(trace) <= TRACE_MAX and not FORBIDDEN.search(trace):
        headers[TRACE] = trace
    if attributes := values.get("MessageAttributes"):
        headers[ATTRIBUTES] = {name: _packed(value) for name, value in attributes.items()}
    for name, value in values.get("MessageSystemAttributes", {}).items():
        if name != "AWSTraceHeader":
            raise bad_value(f"A sender can't set {name[:80]!r}.")
        if value.get("DataType") != "String" or not value.get("StringValue"):
            raise unsupported("An AWSTraceHeader that is not a String")
        headers[TRACE] = value["StringValue"]
    return headers


def text_of(message: Message) -> str:
    """Return the body as a string: what SQS sent unchanged, any other body as JSON.

    A string with characters that SQS cannot represent is returned as JSON too, with these characters escaped.
    """
    body = message.body
    text = str(body) if isinstance(body, RawJson) else json.dumps(body)
    loaded = json.loads(text) if text.startswith('"') else None
    if isinstance(loaded, str) and not FORBIDDEN.search(loaded):
        return loaded
    # In JSON text these characters can only be within a string.
    return FORBIDDEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def is_moved(message: Message) -> bool:
    """Return whether the database may know the source queue of a message."""
    return MOVED in _headers(message)


def received(
    message: Message,
    origin: SqsOrigin | None,
    *,
    arn_of: Callable[[str], str],
    system: Iterable[str],
    names: Iterable[str],
) -> dict[str, Any]:
    """Return a message in ReceiveMessage's form, with the requested attributes."""
    text = text_of(message)
    sent_as = (message.queue, message.message_id) if origin is None else (origin.first_queue, origin.first_id)
    shown: dict[str, Any] = {
        "MessageId": id_of(*sent_as),
        "ReceiptHandle": handle_of(message),
        "MD5OfBody": digest_of_body(text),
        "Body": text,
    }
    if attributes := {k: v for k, v in _system(message, origin, arn_of).items() if _wants(system, k)}:
        shown["Attributes"] = attributes
    sent = {name: value for name, value in _attributes(message).items() if _wants(names, name)}
    if sent:
        shown["MessageAttributes"] = sent
        shown["MD5OfMessageAttributes"] = digest_of_attributes(sent)
    return shown


def _headers(message: Message) -> Mapping[str, Any]:
    # PGMQ accepts any JSON as headers.
    return message.headers if isinstance(message.headers, dict) else {}


def _attributes(message: Message) -> dict[str, dict[str, Any]]:
    """Return the message attributes; {} if SQS would have refused any of them."""
    packed = _headers(message).get(ATTRIBUTES)
    if not isinstance(packed, dict):
        return {}
    try:
        attributes = {name: _unpacked(value) for name, value in packed.items()}
        check_attributes(attributes)
    except (SqsError, TypeError, KeyError, ValueError, AttributeError):
        return {}
    return attributes


def _system(message: Message, origin: SqsOrigin | None, arn_of: Callable[[str], str]) -> dict[str, str]:
    headers = _headers(message)
    first = message.last_read_at if message.last_read_at is not None else message.enqueued_at
    sent_at = message.enqueued_at if origin is None else origin.sent_at
    attributes = {
        "SentTimestamp": _milliseconds(sent_at),
        "ApproximateReceiveCount": str(message.attempt + (0 if origin is None else origin.received)),
        "ApproximateFirstReceiveTimestamp": _milliseconds(first),
        # The database does not record which key sent a message, and a sender may write any header.
        "SenderId": ACCOUNT,
    }
    if message.group is not None:
        attributes["MessageGroupId"] = FORBIDDEN.sub("\ufffd", message.group)
    if message.queue.endswith(".fifo"):
        attributes["SequenceNumber"] = sequence_number(message.message_id)
    if isinstance(dedup_id := headers.get(DEDUP), str) and is_fifo_id(dedup_id):
        attributes["MessageDeduplicationId"] = dedup_id
    if isinstance(trace := headers.get(TRACE), str) and trace and not FORBIDDEN.search(trace):
        attributes["AWSTraceHeader"] = trace
    if origin is not None:
        attributes["DeadLetterQueueSourceArn"] = arn_of(origin.source)
    return attributes


def sequence_number(message_id: int) -> str:
    """Return the SequenceNumber of a message in a FIFO queue: 20 digits, the first of which is not 0, as in AWS."""
    return f"1{message_id:019d}"


def _wants(patterns: Iterable[str], name: str) -> bool:
    for pattern in patterns:
        if (
            pattern in ("All", ".*")
            or pattern == name
            or (pattern.endswith(".*") and name.startswith(pattern[:-2]))
        ):
            return True
    return False


def _milliseconds(moment: datetime) -> str:
    return str(int(moment.timestamp() * 1000))


def _packed(value: Mapping[str, Any]) -> dict[str, str]:
    if value.get("BinaryValue") is not None:
        return {"DataType": value["DataType"], "Binary": base64.b64encode(value["BinaryValue"]).decode()}
    return {"DataType": value["DataType"], "String": value["StringValue"]}


def _unpacked(value: Mapping[str, str]) -> dict[str, Any]:
    if "Binary" in value:
        return {"DataType": value["DataType"], "BinaryValue": base64.b64decode(value["Binary"])}
    return {"DataType": value["DataType"], "StringValue": value["String"]}


def digest_of_body(body: str) -> str:
    """Return the MD5 of a body, with which clients verify it."""
    return hashlib.md5(body.encode(), usedforsecurity=False).hexdigest()


def digest_of_attributes(attributes: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return the MD5 of message attributes, None without attributes.

    See Amazon SQS Developer Guide, "Calculating the MD5 message digest for message attributes".
    """
    if not attributes:
        return None
    digest = hashlib.md5(usedforsecurity=False)
    for name in sorted(attributes):
        value = attributes[name]
        digest.update(_sized(name.encode()) + _sized(value["DataType"].encode()))
        if value.get("BinaryValue") is not None:
            digest.update(b"\x02" + _sized(value["BinaryValue"]))
        else:
            digest.update(b"\x01" + _sized(value["StringValue"].encode()))
    return digest.hexdigest()


def _sized(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def handle_of(message: Message) -> str:
    """Return the handle of a message that was received."""
    handle = receipt.write(message.queue, message.message_id, message.lease_id or 0)
    if message.queue.endswith(".fifo"):
        handle += f".{int(message.leased_until.timestamp() * 1000):x}"
    return handle


def read_handle(queue: QueueView, handle: str) -> Receipt:
    """Return the receipt of a handle; raises an SqsError for a handle that is not one of this queue."""
    try:
        held = receipt.read(handle.partition(".")[0] if queue.is_fifo else handle)
    except InvalidArgumentError as error:
        raise _bad_handle(handle) from error
    if folded(held.queue) != folded(queue.name):
        raise _bad_handle(handle)
    return held


def may_have_expired(handle: str) -> bool:
    """Return whether the visibility timeout of a FIFO queue's handle is over, unless it was changed later."""
    try:
        return int(handle.partition(".")[2], 16) <= time.time() * 1000
    except ValueError:
        return True


def _bad_handle(handle: str) -> SqsError:
    return SqsError(
        "ReceiptHandleIsInvalid", f'The input receipt handle "{handle[:200]}" is not a valid receipt handle.'
    )
