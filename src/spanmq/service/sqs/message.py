"""A message as SQS sees it: a text, in the queue a JSON string, with typed attributes, in its headers."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final
from uuid import UUID, uuid5

from spanmq.body import RawJson
from spanmq.message import Message
from spanmq.service import receipt
from spanmq.service.sqs import digest
from spanmq.service.sqs.refusal import SqsError, bad_value, unsupported

ATTRIBUTES: Final = "x-sqs-attributes"
TRACE: Final = "x-sqs-trace"
SENDER: Final = "x-sqs-sender"
DEDUP: Final = "x-sqs-dedup"
# Of a message that was moved: what it was where it was sent.
MOVED_ID: Final = "x-sqs-message-id"
MOVED_AT: Final = "x-sqs-sent"
MOVED_FROM: Final = "x-sqs-source"

ATTRIBUTES_MAX: Final = 10
SYSTEM_ATTRIBUTES: Final = (
    "SenderId",
    "SentTimestamp",
    "ApproximateReceiveCount",
    "ApproximateFirstReceiveTimestamp",
    "SequenceNumber",
    "MessageDeduplicationId",
    "MessageGroupId",
    "AWSTraceHeader",
    "DeadLetterQueueSourceArn",
)
# What XML 1.0 can't hold, SQS refuses.
_FORBIDDEN: Final = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ATTRIBUTE_NAME: Final = re.compile(r"(?!(?i:aws\.|amazon\.))(?!\.)(?!.*\.\.)[A-Za-z0-9_.-]{1,256}(?<!\.)")
_DATA_TYPE: Final = re.compile(r"(String|Number|Binary)(\.[^\s]{1,240})?")
_NUMBER: Final = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")
_IDS: Final = UUID("7d0b8b5c-9e0f-5d53-9a0e-6d5f6f2f7a11")


def id_of(queue: str, message_id: int) -> str:
    """Give the MessageId of a message: the same whenever one asks."""
    return str(uuid5(_IDS, f"{queue}/{message_id}"))


def check_text(text: str) -> None:
    """Raise an SqsError for a body that SQS refuses."""
    if not text:
        raise SqsError("MissingParameter", "The request must contain the parameter MessageBody.")
    if _FORBIDDEN.search(text):
        raise SqsError("InvalidMessageContents", "Invalid characters found in the message body.")


def check_attributes(attributes: Mapping[str, Mapping[str, Any]]) -> int:
    """Raise an SqsError for attributes that SQS refuses; give their bytes."""
    if len(attributes) > ATTRIBUTES_MAX:
        raise bad_value(f"A message has {ATTRIBUTES_MAX} attributes at most.")
    size = 0
    for name, value in attributes.items():
        if not _ATTRIBUTE_NAME.fullmatch(name):
            raise bad_value(f"{name[:80]!r} can't be the name of a message attribute.")
        kind = value.get("DataType", "")
        if not _DATA_TYPE.fullmatch(kind):
            raise bad_value(f"The message attribute {name!r} has an invalid DataType.")
        given = {key for key, each in value.items() if each is not None} - {"DataType"}
        wanted = "BinaryValue" if kind.startswith("Binary") else "StringValue"
        if given != {wanted} or not value[wanted]:
            raise bad_value(f"The message attribute {name!r} must have a {wanted}, and nothing else.")
        if kind.startswith("Number") and not _NUMBER.fullmatch(value[wanted]):
            raise bad_value(f"The message attribute {name!r} is no number.")
        if wanted == "StringValue" and _FORBIDDEN.search(value[wanted]):
            raise SqsError("InvalidMessageContents", f"Invalid characters found in {name!r}.")
        content = value[wanted] if wanted == "BinaryValue" else value[wanted].encode()
        size += len(name.encode()) + len(kind.encode()) + len(content)
    return size


def headers_of(values: Mapping[str, Any], sender: str, dedup_id: str | None) -> dict[str, Any]:
    """Give what stands in the headers of a message that is sent."""
    headers: dict[str, Any] = {}
    if sender:
        headers[SENDER] = sender
    if dedup_id is not None:
        headers[DEDUP] = dedup_id
    if attributes := values.get("MessageAttributes"):
        headers[ATTRIBUTES] = {name: _packed(value) for name, value in attributes.items()}
    for name, value in values.get("MessageSystemAttributes", {}).items():
        if name != "AWSTraceHeader":
            raise bad_value(f"A sender can't set {name[:80]!r}.")
        if value.get("DataType") != "String" or not value.get("StringValue"):
            raise unsupported("An AWSTraceHeader that is no String")
        headers[TRACE] = value["StringValue"]
    return headers


def text_of(message: Message) -> str:
    """Give the text: what a program sent through SQS as it was, and what others sent as JSON."""
    body = message.body
    if isinstance(body, RawJson):
        text = body.text if isinstance(body.text, str) else body.text.decode()
    else:
        text = json.dumps(body)
    loaded = json.loads(text) if text.startswith('"') else None
    return loaded if isinstance(loaded, str) else text


def moved_headers(message: Message, queue: str) -> dict[str, Any]:
    """Give the headers of a message that goes to another queue and stays the same message."""
    headers = dict(message.headers or {})
    headers.setdefault(MOVED_ID, id_of(queue, message.message_id))
    headers.setdefault(MOVED_AT, _milliseconds(message))
    headers[MOVED_FROM] = queue
    return headers


def received(message: Message, *, arn_of: Any, system: Iterable[str], names: Iterable[str]) -> dict[str, Any]:
    """Give a message as ReceiveMessage answers it, with the attributes that were asked for."""
    headers = message.headers or {}
    text = text_of(message)
    given: dict[str, Any] = {
        "MessageId": headers.get(MOVED_ID) or id_of(message.queue, message.message_id),
        "ReceiptHandle": receipt.write(message.queue, message.message_id, message.lease_id or 0),
        "MD5OfBody": digest.of_body(text),
        "Body": text,
    }
    if attributes := {k: v for k, v in _system(message, headers, arn_of).items() if _wants(system, k)}:
        given["Attributes"] = attributes
    sent = {
        name: _unpacked(value)
        for name, value in (headers.get(ATTRIBUTES) or {}).items()
        if _wants(names, name)
    }
    if sent:
        given["MessageAttributes"] = sent
        given["MD5OfMessageAttributes"] = digest.of_attributes(sent)
    return given


def _system(message: Message, headers: Mapping[str, Any], arn_of: Any) -> dict[str, str]:
    first = message.last_read_at if message.last_read_at is not None else message.enqueued_at
    attributes = {
        "SentTimestamp": str(headers.get(MOVED_AT) or _milliseconds(message)),
        "ApproximateReceiveCount": str(message.attempt),
        "ApproximateFirstReceiveTimestamp": str(int(first.timestamp() * 1000)),
        "SenderId": str(headers.get(SENDER) or ""),
    }
    if message.group is not None:
        attributes["MessageGroupId"] = message.group
    if message.queue.endswith(".fifo"):
        attributes["SequenceNumber"] = sequence_number(message.message_id)
    if DEDUP in headers:
        attributes["MessageDeduplicationId"] = headers[DEDUP]
    if TRACE in headers:
        attributes["AWSTraceHeader"] = headers[TRACE]
    if MOVED_FROM in headers:
        attributes["DeadLetterQueueSourceArn"] = arn_of(headers[MOVED_FROM])
    return attributes


def sequence_number(message_id: int) -> str:
    """Give the SequenceNumber of a message in a FIFO queue."""
    return f"{message_id:020d}"


def _wants(wanted: Iterable[str], name: str) -> bool:
    for each in wanted:
        if each in ("All", ".*") or each == name or (each.endswith(".*") and name.startswith(each[:-1])):
            return True
    return False


def _milliseconds(message: Message) -> str:
    return str(int(message.enqueued_at.timestamp() * 1000))


def _packed(value: Mapping[str, Any]) -> dict[str, str]:
    if value.get("BinaryValue") is not None:
        return {"DataType": value["DataType"], "Binary": base64.b64encode(value["BinaryValue"]).decode()}
    return {"DataType": value["DataType"], "String": value["StringValue"]}


def _unpacked(value: Mapping[str, str]) -> dict[str, Any]:
    if "Binary" in value:
        return {"DataType": value["DataType"], "BinaryValue": base64.b64decode(value["Binary"])}
    return {"DataType": value["DataType"], "StringValue": value["String"]}
