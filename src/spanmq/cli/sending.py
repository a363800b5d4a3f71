"""Sending: one message from the command line, or many from stdin, a line each."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from spanmq.body import Headers, RawJson
from spanmq.cli.connect import client
from spanmq.cli.failure import say
from spanmq.cli.interrupt import held_back
from spanmq.cli.json_text import json_of, members_of
from spanmq.cli.lines import Lines
from spanmq.cli.option import (
    AsJson,
    DelaySeconds,
    DelayText,
    Dsn,
    GroupName,
    HeadersText,
    QueueName,
    delay_of,
    object_of,
    refuse_terminal,
)
from spanmq.cli.output import Output
from spanmq.cli.progress import counted, size_of
from spanmq.errors import InvalidBodyError

commands = typer.Typer()

Body = Annotated[
    str | None,
    typer.Argument(metavar="BODY", help="JSON; - or nothing: bodies are lines of stdin.", show_default=False),
]
IsText = Annotated[bool, typer.Option("--text", help="Bodies are text, not JSON.")]
IsMessage = Annotated[
    bool,
    typer.Option("--messages", help="Lines are messages, as receive --json prints them: body and headers."),
]
Batch = Annotated[int, typer.Option(min=1, max=100_000, help="Lines that are sent in one transaction.")]


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message as it was given."""

    body: object
    headers: Headers | None = None
    dedup_id: str | None = None


@commands.command()
def send(
    queue: QueueName,
    body: Body = None,
    headers: HeadersText = None,
    group: GroupName = None,
    delay: DelayText = None,
    priority: Annotated[int, typer.Option(help="0 to 9; higher comes first.")] = 0,
    expires_in: Annotated[
        float | None,
        typer.Option(help="Seconds after which it is not delivered any more.", show_default=False),
    ] = None,
    max_attempts: Annotated[
        int | None,
        typer.Option(help="After so many deliveries it is a dead letter.", show_default=False),
    ] = None,
    dedup_id: Annotated[
        str | None,
        typer.Option(
            help="Don't send what was sent under this id already; lines of --messages have their own.",
            show_default=False,
        ),
    ] = None,
    dedup_for: Annotated[float, typer.Option(help="Seconds for which a dedup id stands.")] = 300.0,
    fingerprint: Annotated[
        str | None,
        typer.Option(
            help="What it is sent as: refused under a dedup id that has another one.", show_default=False
        ),
    ] = None,
    ordered: Annotated[
        bool, typer.Option("--ordered", help="Commit after other ordered senders of the group.")
    ] = False,
    is_text: IsText = False,
    is_message: IsMessage = False,
    batch: Batch = 1_000,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Send a message, or every line of stdin.

    From stdin each batch is a transaction: after an error or Ctrl-C the batches before it are sent, and the
    program says how many messages that are.
    """
    output = Output(as_json=as_json)
    own, until = object_of(headers, "headers"), None if delay is None else delay_of(delay)
    options: dict[str, Any] = {
        "group": group,
        "delay": until,
        "priority": priority,
        "expires_in": expires_in,
        "max_attempts": max_attempts,
        "dedup_for": dedup_for,
        "fingerprint": fingerprint,
        "ordered": ordered,
    }
    if body is not None and body != "-":
        outgoing = _from_argument(body, is_text=is_text, is_message=is_message)
        with client(dsn) as opened:
            message_id = opened.send(
                queue,
                outgoing.body,
                headers=_merge(outgoing.headers, own),
                dedup_id=dedup_id or outgoing.dedup_id,
                **options,
            )
        output.done(f"sent message {message_id} to {queue}", queue=queue, message_id=message_id)
        return
    if dedup_id is not None:
        raise typer.BadParameter("--dedup-id is for one BODY; lines of --messages may have a dedup_id each")
    if body is None:
        refuse_terminal("give a BODY, or pipe lines of JSON into it; - reads the terminal")
    with client(dsn) as opened:

        def send_one_batch(messages: Sequence[Outgoing]) -> list[dict[str, Any]]:
            dedup_ids = [message.dedup_id for message in messages]
            ids = opened.send_batch(
                queue,
                [message.body for message in messages],
                headers=[_merge(message.headers, own) for message in messages],
                dedup_ids=dedup_ids if any(dedup_ids) else None,
                **options,
            )
            return [{"queue": queue, "message_id": message_id} for message_id in ids]

        sent = _send_lines(send_one_batch, output, batch=batch, is_text=is_text, is_message=is_message)
    if not as_json:
        output.done(f"sent {sent:,} {_noun(sent)} to {queue}")


@commands.command()
def send_topic(
    routing_key: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", show_default=False)],
    body: Body = None,
    headers: HeadersText = None,
    group: GroupName = None,
    delay: DelaySeconds = None,
    is_text: IsText = False,
    is_message: IsMessage = False,
    batch: Batch = 1_000,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Send a message, or every line of stdin, to each queue that is bound to the topic."""
    output = Output(as_json=as_json)
    own = object_of(headers, "headers")
    if body is not None and body != "-":
        outgoing = _from_argument(body, is_text=is_text, is_message=is_message)
        with client(dsn) as opened:
            queues = opened.send_topic(
                routing_key, outgoing.body, headers=_merge(outgoing.headers, own), group=group, delay=delay
            )
        output.done(f"sent to {queues} queues", routing_key=routing_key, queues=queues)
        return
    if body is None:
        refuse_terminal("give a BODY, or pipe lines of JSON into it; - reads the terminal")
    with client(dsn) as opened:

        def send_one_batch(messages: Sequence[Outgoing]) -> list[dict[str, Any]]:
            routed = opened.send_batch_topic(
                routing_key,
                [message.body for message in messages],
                headers=[_merge(message.headers, own) for message in messages],
                group=group,
                delay=delay,
            )
            return [{"queue": each.queue, "message_id": each.message_id} for each in routed]

        sent = _send_lines(send_one_batch, output, batch=batch, is_text=is_text, is_message=is_message)
    if not as_json:
        output.done(f"sent {sent:,} {_noun(sent)} to {routing_key}")


def _noun(sent: int) -> str:
    return "message" if sent == 1 else "messages"


def _send_lines(
    send_one_batch: Callable[[Sequence[Outgoing]], list[dict[str, Any]]],
    output: Output,
    *,
    batch: int,
    is_text: bool,
    is_message: bool,
) -> int:
    descriptor = sys.stdin.fileno()
    lines = Lines(descriptor, batch=batch)
    sent = number = 0
    in_doubt = False
    try:
        with counted("sending", total_bytes=size_of(descriptor)) as advance:
            for given in lines.batches():
                messages = []
                for line in given:
                    number += 1
                    if is_text or line.strip():
                        messages.append(_from_line(line, number, is_text=is_text, is_message=is_message))
                if messages:
                    in_doubt = True
                    with held_back():
                        records = send_one_batch(messages)
                        sent, in_doubt = sent + len(messages), False
                        if output.as_json:
                            output.records(records)
                advance(sent, lines.bytes_read)
    except KeyboardInterrupt:
        doubt = "; a batch was on its way, and may have been sent" if in_doubt else ""
        say(f"spanmq: {sent:,} messages were sent{doubt}")
        raise
    except BrokenPipeError:
        say(f"spanmq: {sent:,} messages were sent; nobody reads their ids any more")
        raise
    except Exception:
        say(f"spanmq: {sent:,} messages were sent before this:")
        raise
    return sent


def _from_argument(text: str, *, is_text: bool, is_message: bool) -> Outgoing:
    try:
        return _outgoing(text, is_text=is_text, is_message=is_message)
    except (ValueError, RecursionError) as error:
        hint = "" if is_text or is_message else ". As a text it is '\"…\"', or use --text"
        raise typer.BadParameter(f"the body is not valid JSON: {error}{hint}") from error


def _from_line(line: bytes, number: int, *, is_text: bool, is_message: bool) -> Outgoing:
    try:
        return _outgoing(line.decode(), is_text=is_text, is_message=is_message)
    except UnicodeDecodeError as error:
        raise InvalidBodyError(f"line {number} is not UTF-8: {error}") from error
    except (ValueError, RecursionError) as error:
        hint = (
            None if is_text or is_message else "Each line is one JSON value; --text sends lines as they are."
        )
        raise InvalidBodyError(f"line {number} is not valid JSON: {error}", hint=hint) from error


def _outgoing(text: str, *, is_text: bool, is_message: bool) -> Outgoing:
    if is_text:
        return Outgoing(text)
    if not is_message:
        json_of(text)
        return Outgoing(RawJson(text))
    members = members_of(text)
    if "body" not in members:
        raise ValueError("a message is an object with a body")
    headers = json_of(members.get("headers", "null"))
    if headers is not None and not isinstance(headers, dict):
        raise ValueError("headers must be an object")
    dedup_id = json_of(members.get("dedup_id", "null"))
    if dedup_id is not None and not isinstance(dedup_id, str):
        raise ValueError("dedup_id must be a string")
    return Outgoing(RawJson(members["body"]), headers, dedup_id)


def _merge(theirs: Headers | None, ours: Headers | None) -> Headers | None:
    if theirs is None or ours is None:
        return theirs or ours
    return {**theirs, **ours}
