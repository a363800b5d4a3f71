"""Waiting for a signal: what a task returns to wait, and what the task that follows gets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from spanmq.client.argument import Seconds, duration
from spanmq.codec.encryption import Unopened
from spanmq.errors import InvalidArgumentError, TaskArgumentsError
from spanmq.model import Message
from spanmq.tasks.call import Call, Place, end_call

HEADER: Final = "x-spanmq-signal"


class SignalOptions(Place, total=False):
    """Options of `Tasks.signal`."""

    queue: str
    keep_for: Seconds
    timed_out: bool


class WithoutArguments(Protocol):
    """A task that is called without arguments."""

    def call(self) -> Call:
        """Return the call."""


@dataclass(frozen=True, slots=True, init=False)
class Wait:
    """As the result of a task: the call `then` is sent when the signal `name` comes, or after `timeout` seconds.

    It is sent into its own queue, where the signal must come; `then` is a call, or a task without arguments. Until
    then it is in no queue, and takes no lease and no slot. If the signal came before, it is sent at once. Names of
    waits in a queue differ: the transaction of a second wait for the same name fails. Raises InvalidArgumentError for
    values that are not valid, and for a call with other options than a group and headers.
    """

    name: str
    timeout: Seconds
    then: Call

    def __init__(self, name: str, *, timeout: Seconds, then: Call | WithoutArguments) -> None:
        if not 1 <= len(str(name).encode("utf-8", "replace")) <= 255:
            raise InvalidArgumentError(f"the name of a signal is a text of 1 to 255 bytes, got {name!r}")
        duration("timeout", timeout)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "timeout", timeout)
        object.__setattr__(self, "then", end_call(then, "wait"))


@dataclass(frozen=True, slots=True)
class Signal:
    """The signal `name` that a task waited for, with its `body`; with `timed_out` it did not come in time."""

    name: str
    body: Any = None
    timed_out: bool = False


def with_opened(message: Message, decode: Callable[[object], object]) -> Message:
    """Return a message with the decoded body of its signal; raises DecryptionError if that cannot be opened."""
    headers: object = message.headers
    # PGMQ takes any JSON as headers.
    header = headers.get(HEADER) if isinstance(headers, dict) else None
    if not isinstance(header, dict) or "body" not in header:
        return message
    body = decode(header["body"])
    if isinstance(body, Unopened):
        raise body.error
    return replace(message, headers={**(message.headers or {}), HEADER: {**header, "body": body}})


def signal_of(message: Message, task: str) -> Signal:
    """Return the signal with which a message was sent; raises TaskArgumentsError for one that did not wait."""
    try:
        return Signal(**(message.headers or {})[HEADER])
    except (KeyError, TypeError) as error:
        raise TaskArgumentsError(f"task {task!r} takes a signal, and the message waited for none") from error


def signal_arguments(queue: str, name: str, body: object, options: SignalOptions) -> dict[str, Any]:
    """Return the arguments of `client.signals.send`."""
    arguments: dict[str, Any] = {"queue": queue, "name": name, "body": body}
    return arguments | {name: options[name] for name in ("queue", "keep_for", "timed_out") if name in options}
