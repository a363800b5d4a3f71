"""The exchanges of AMQP as topics: the key of a message, and the pattern of a binding. No I/O."""

import re

# The word of a pattern, and what it stands for in a key.
WILDCARDS = {"*": r"[^.]+", "#": r".*"}


def key_of(exchange: str, routing_key: str) -> str:
    """Return the key of the messages that are sent to an exchange."""
    words = ".".join(map(_word_of, routing_key.split(".")))
    return f"kombu.{_word_of(exchange)}.{words}"


def pattern_of(kind: str, exchange: str, routing_key: str) -> str:
    """Return the pattern of a binding to an exchange of this kind: direct, topic or fanout."""
    if kind == "fanout":
        return f"kombu.{_word_of(exchange)}.#"
    if kind != "topic":
        return key_of(exchange, routing_key)
    words = (word if word in WILDCARDS else _word_of(word) for word in routing_key.split("."))
    return f"kombu.{_word_of(exchange)}.{'.'.join(words)}"


def expression_of(pattern: str) -> re.Pattern[str]:
    """Return the expression that all of a key matches, if it matches the pattern."""
    return re.compile(r"\.".join(WILDCARDS.get(word) or re.escape(word) for word in pattern.split(".")))


def _word_of(text: str) -> str:
    """Return a text as one word of a key, which has letters, digits, - and _."""
    return re.sub(r"[^A-Za-z0-9_]", lambda match: f"-{ord(match[0]):x}-", text) or "-"
