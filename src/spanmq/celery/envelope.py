"""Messages of kombu as bodies of ours, and exchanges of AMQP as topics. No I/O."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from spanmq.model import Message

# A word of a pattern, and what it stands for in a key.
WILDCARDS = {"*": r"[^.]+", "#": r".*"}


def key_of(exchange: str, routing_key: str) -> str:
    """Return the topic of messages that are sent to an exchange."""
    return ".".join(["kombu", _word(exchange), *map(_word, routing_key.split("."))])


def pattern_of(kind: str, exchange: str, routing_key: str) -> str:
    """Return the pattern of a binding to an exchange of this kind: direct, topic or fanout."""
    if kind == "fanout":
        return f"kombu.{_word(exchange)}.#"
    if kind != "topic":
        return key_of(exchange, routing_key)
    words = (word if word in WILDCARDS else _word(word) for word in routing_key.split("."))
    return ".".join(["kombu", _word(exchange), *words])


def expression_of(pattern: str) -> re.Pattern[str]:
    """Return the expression that the whole of a key matches, if the key matches the pattern."""
    return re.compile(r"\.".join(WILDCARDS.get(word) or re.escape(word) for word in pattern.split(".")))


def enclosed(message: Mapping[str, Any], exchange: str, routing_key: str, body: Any) -> dict[str, Any]:
    """Return a message that a channel has prepared, as a body of ours; its own, encoded `body` is a text."""
    properties = dict(message["properties"])
    # A body in text stays readable in SQL.
    properties["body_encoding"] = "utf-8" if body is message["body"] else "base64"
    properties["delivery_info"] = properties["delivery_info"] | {
        "exchange": exchange, "routing_key": routing_key
    }  # fmt: skip
    return {**message, "body": body, "properties": properties}


def options_of(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a send: the priority, the time to live, and the ETA as the moment of its visibility."""
    properties = message["properties"]
    options: dict[str, Any] = {"priority": min(max(int(properties.get("priority") or 0), 0), 9)}
    if milliseconds := float(properties.get("expiration") or 0):
        options["expires_in"] = milliseconds / 1000
    try:
        eta = datetime.fromisoformat(message["headers"].get("eta"))
    except (TypeError, ValueError):
        return options
    # One without an offset is in the time zone of the worker, which waits for it.
    if eta.tzinfo is not None and eta > datetime.now(UTC):
        options["delay"] = eta
    return options


def opened(message: Message, tag: str) -> dict[str, Any] | None:
    """Return a message as kombu reads it, for a delivery with this tag; None if its body is not such a message."""
    try:
        properties = message.body["properties"]
        information = properties["delivery_info"] | {"redelivered": message.attempt > 1}
        return {
            **message.body,
            "properties": {**properties, "delivery_tag": tag, "delivery_info": information},
        }
    except (KeyError, TypeError):
        return None


def _word(text: str) -> str:
    """Return a text as one word of a topic, which has letters, digits, - and _."""
    return re.sub(r"[^A-Za-z0-9_]", lambda match: f"-{ord(match[0]):x}-", text) or "-"
