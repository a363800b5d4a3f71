"""JSON of responses: bodies of messages are included as the database returned them, to the last digit."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from starlette.responses import Response

from spanmq.codec.body import RawJson
from spanmq.codec.encryption import Unopened
from spanmq.model import Message
from spanmq.service import receipt

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class JsonText(Response):
    """A response whose JSON is already encoded."""

    media_type = "application/json"


def reply(status: int = 200, **members: object) -> JsonText:
    """Answer with an object."""
    return JsonText(to_json(members), status)


def messages_of(messages: Iterable[Message]) -> JsonText:
    """Answer with messages; those under a lease have a receipt."""
    return messages_text([message_text(message) for message in messages])


def messages_text(texts: Iterable[str]) -> JsonText:
    """Answer with messages that are already encoded."""
    return JsonText(f'{{"messages":[{",".join(texts)}]}}')


def message_text(message: Message) -> str:
    """Encode a message. Written by hand for speed: most of its values contain nothing to escape."""
    text = (
        f'{{"message_id":{message.message_id},"attempt":{message.attempt}'
        f',"enqueued_at":"{message.enqueued_at.isoformat()}","leased_until":"{message.leased_until.isoformat()}"'
        f',"group":{_or_null(message.group)},"headers":{_or_null(message.headers)}'
    )
    if message.lease_id is not None:
        held = receipt.write(message.queue, message.message_id, message.lease_id)
        text += f',"receipt":"{held}","last_error":{_or_null(message.last_error)}'
    if message.archived_at is not None:
        text += f',"archived_at":"{message.archived_at.isoformat()}"'
    return f'{text},"body":{to_json(message.body)}}}'


def _or_null(value: object) -> str:
    # Most messages have null here, for which the encoder takes two microseconds.
    return "null" if value is None else _encoded(value)


def _encoded(value: object) -> str:
    try:
        return _encode(value)
    except ValueError:
        # A number with more digits than Python converts (4,300); PostgreSQL stores 131,072.
        if type(value) is int:
            return f"{Decimal(value):f}"
        if isinstance(value, Mapping | list):
            return to_json(value)
        raise


def to_json(value: Any) -> str:
    """Encode a value: dataclasses as objects, times in ISO 8601."""
    if isinstance(value, RawJson):
        return str(value)
    if value is None or isinstance(value, str | int):
        return _encoded(value)
    if isinstance(value, datetime):
        return f'"{value.isoformat()}"'
    if isinstance(value, Unopened):
        return to_json({"spanmq.unopened": value.error.message})
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return "{" + ",".join([f"{_encode(str(k))}:{to_json(v)}" for k, v in value.items()]) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join([to_json(each) for each in value]) + "]"
    return _encode(value)
