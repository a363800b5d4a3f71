"""JSON of responses: bodies of messages are included as the database returned them, to the last digit."""

from collections.abc import Iterable

from starlette.responses import Response

from spanmq.codec import plain_json, to_json
from spanmq.model import Message
from spanmq_service import receipt


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
    return "null" if value is None else plain_json(value)
