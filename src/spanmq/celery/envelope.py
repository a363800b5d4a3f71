"""A message of kombu as the body of one of ours. No I/O."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from spanmq.codec.body import Headers
from spanmq.model import Message


def enclose(message: Mapping[str, Any], exchange: str, routing_key: str) -> dict[str, Any]:
    """Return the body for a message that a channel has prepared; a body in text stays readable in SQL."""
    is_text = isinstance(message["body"], str)
    properties = {
        **message["properties"],
        "body_encoding": "utf-8" if is_text else "base64",
        "delivery_info": {
            **message["properties"]["delivery_info"],
            "exchange": exchange,
            "routing_key": routing_key,
        },
    }
    return {**message, "properties": properties}


def options_of(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the send: when it becomes visible, its priority, and when it expires."""
    properties = message["properties"]
    options: dict[str, Any] = {"priority": min(max(int(properties.get("priority") or 0), 0), 9)}
    if milliseconds := float(properties.get("expiration") or 0):
        options["expires_in"] = milliseconds / 1000
    if (eta := _moment(message["headers"].get("eta"))) is not None and eta > datetime.now(UTC):
        options["delay"] = eta
    return options


def headers_of(message: Mapping[str, Any]) -> Headers | None:
    """Return the name of the task and its id, for lists and searches."""
    headers = message["headers"]
    named = {"celery-task": headers.get("task"), "celery-id": headers.get("id")}
    return {key: value for key, value in named.items() if value} or None


def open_envelope(message: Message, tag: str) -> dict[str, Any] | None:
    """Return the message as kombu reads it, for a delivery with this tag; None if the body is another one."""
    body = message.body
    properties = body.get("properties") if isinstance(body, dict) else None
    information = properties.get("delivery_info") if isinstance(properties, dict) else None
    if not isinstance(body, dict) or not isinstance(properties, dict) or not isinstance(information, dict):
        return None
    delivery_info = {**information, "redelivered": message.attempt > 1}
    return {**body, "properties": {**properties, "delivery_tag": tag, "delivery_info": delivery_info}}


def _moment(text: Any) -> datetime | None:
    """Return a moment in ISO 8601; None for another value, and for one without an offset, which workers wait for."""
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return moment if moment.tzinfo is not None else None
