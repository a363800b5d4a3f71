"""`send`, and `topic send`: one message from the command line, or many from stdin, a line each."""

import os
import select
import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from spanmq.cli.connect import client
from spanmq.cli.failure import say
from spanmq.cli.interrupt import held_back
from spanmq.cli.option import AsJson, DelayTime, Dsn, GroupName, Headers, QueueName, refuse_terminal
from spanmq.cli.output import Done, Output, fields, number_of
from spanmq.cli.progress import counted, size_of
from spanmq.cli.verbs import Commands
from spanmq.codec.batch import BYTES_PER_CALL
from spanmq.codec.body import RawJson
from spanmq.codec.exact_json import dumps, json_of, loads
from spanmq.errors import InvalidBodyError

if TYPE_CHECKING:
    from spanmq.client import Client

commands = Commands()

Body = Annotated[
    str | None, typer.Argument(metavar="BODY", help="JSON; - or nothing: bodies are lines of stdin.")
]
IsText = Annotated[bool, typer.Option("--text", help="Bodies are text, not JSON.")]
IsMessage = Annotated[
    bool,
    typer.Option("--messages", help="Lines are messages, as receive --json prints them: body and headers."),
]
Batch = Annotated[int, typer.Option(min=1, max=100_000, help="Lines that are sent in one transaction.")]
# A batch that is not full is sent when no line arrives for this time: `tail -f log | spanmq send` should not
# lag.
IDLE_SECONDS: Final = 0.2
READ_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message as given on the command line."""

    body: object
    headers: dict[str, Any] | None = None
    dedup_id: str | None = None


@commands.command()
def send(
    queue: QueueName,
    body: Body = None,
    headers: Headers = None,
    group: GroupName = None,
    delay: DelayTime = None,
    priority: Annotated[int, typer.Option(help="0 to 9; higher comes first.")] = 0,
    expires_in: Annotated[
        float | None,
        typer.Option(help="Seconds until the message expires; an expired message is not delivered."),
    ] = None,
    max_attempts: Annotated[
        int | None, typer.Option(help="After this many deliveries it is a dead letter.")
    ] = None,
    dedup_id: Annotated[
        str | None,
        typer.Option(
            help="Do not send what was sent under this id already; lines of --messages have their own."
        ),
    ] = None,
    dedup_for: Annotated[float, typer.Option(help="Seconds for which a dedup id is kept.")] = 300.0,
    fingerprint: Annotated[
        str | None,
        typer.Option(help="Identifies the content: refused under a dedup id that has another one."),
    ] = None,
    ordered: Annotated[
        bool, typer.Option("--ordered", help="Commit after other ordered senders of the group.")
    ] = False,
    dedup_until: Annotated[
        str | None,
        typer.Option(help="A dedup id stands for a message until that is settled, or started."),
    ] = None,
    on_duplicate: Annotated[
        str, typer.Option(help="With --dedup-until: keep the message of the dedup id, replace it, or raise.")
    ] = "keep",
    is_text: IsText = False,
    is_message: IsMessage = False,
    batch: Batch = 1_000,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Send a message, or every line of stdin.

    From stdin each batch is a transaction: after an error or Ctrl-C the batches before it are sent, and the
    program reports how many messages that are.

    $ spanmq send orders '{"order": 17}' --group customer-3
    $ tail -f events.jsonl | spanmq send events
    """
    if dedup_id is not None and body in (None, "-"):
        raise typer.BadParameter("--dedup-id is only for BODY; each line of --messages may have a dedup_id")
    options: dict[str, Any] = {
        "group": group,
        "delay": delay,
        "priority": priority,
        "expires_in": expires_in,
        "max_attempts": max_attempts,
        "dedup_for": dedup_for,
        "fingerprint": fingerprint,
        "ordered": ordered,
        "dedup_until": dedup_until,
        "on_duplicate": on_duplicate,
    }

    def send_one(opened: "Client", message: Outgoing) -> Done:
        message_id = opened.send(
            queue, message.body, headers=message.headers, dedup_id=dedup_id or message.dedup_id, **options
        )
        return Done(f"sent message {message_id} to {queue}", {"queue": queue, "message_id": message_id})

    def send_many(opened: "Client", messages: Sequence[Outgoing]) -> list[dict[str, Any]]:
        dedup_ids = [message.dedup_id for message in messages]
        ids = opened.send_batch(
            queue,
            [message.body for message in messages],
            headers=[message.headers for message in messages],
            dedup_ids=dedup_ids if any(dedup_ids) else None,
            **options,
        )
        return [{"queue": queue, "message_id": message_id} for message_id in ids]

    reader = Reader(is_text=is_text, is_message=is_message, headers=headers)
    _send(queue, body, reader, batch, send_one, send_many, dsn=dsn, as_json=as_json)


def send_topic(
    routing_key: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    body: Body = None,
    headers: Headers = None,
    group: GroupName = None,
    delay: Annotated[float | None, typer.Option(help="Deliver it that many seconds from now.")] = None,
    is_text: IsText = False,
    is_message: IsMessage = False,
    batch: Batch = 1_000,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Send a message, or every line of stdin, to each queue that is bound to the topic.

    $ spanmq topic send orders.created '{"order": 17}'
    """
    options: dict[str, Any] = {"group": group, "delay": delay}

    def send_one(opened: "Client", message: Outgoing) -> Done:
        queues = opened.topics.send(routing_key, message.body, headers=message.headers, **options)
        return Done(f"sent to {number_of(queues, 'queue')}", {"routing_key": routing_key, "queues": queues})

    def send_many(opened: "Client", messages: Sequence[Outgoing]) -> list[dict[str, Any]]:
        bodies, own = [message.body for message in messages], [message.headers for message in messages]
        routed = opened.topics.send_batch(routing_key, bodies, headers=own, **options)
        return [fields(copy) for copy in routed]

    reader = Reader(is_text=is_text, is_message=is_message, headers=headers)
    _send(routing_key, body, reader, batch, send_one, send_many, dsn=dsn, as_json=as_json)


def _send(
    target: str,
    body: str | None,
    reader: "Reader",
    batch: int,
    send_one: "Callable[[Client, Outgoing], Done]",
    send_many: "Callable[[Client, Sequence[Outgoing]], list[dict[str, Any]]]",
    *,
    dsn: str | None,
    as_json: bool,
) -> None:
    """Send the body that was given, or the lines of stdin."""
    output = Output(as_json=as_json)
    if body is not None and body != "-":
        outgoing = reader.argument(body)
        with client(dsn) as opened:
            output.show(send_one(opened, outgoing))
        return
    if body is None:
        refuse_terminal("give a BODY, or pipe lines of JSON into it; - reads the terminal")
    with client(dsn) as opened:
        sent = _send_lines(lambda messages: send_many(opened, messages), output, reader, batch)
    if not as_json:
        noun = "message" if sent == 1 else "messages"
        output.done(f"sent {sent:,} {noun} to {target}")


def _send_lines(
    send_many: Callable[[Sequence[Outgoing]], list[dict[str, Any]]],
    output: Output,
    reader: "Reader",
    batch: int,
) -> int:
    descriptor = sys.stdin.fileno()
    sent = number = 0
    in_doubt = False
    try:
        with counted("sending", total_bytes=size_of(descriptor)) as advance:
            for lines, bytes_read in line_batches(descriptor, batch):
                messages = []
                for line in lines:
                    number += 1
                    if reader.is_text or line.strip():
                        messages.append(reader.line(line, number))
                if messages:
                    in_doubt = True
                    with held_back():
                        records = send_many(messages)
                        sent, in_doubt = sent + len(messages), False
                        if output.as_json:
                            output.records(records)
                advance(sent, bytes_read)
    except KeyboardInterrupt:
        doubt = "; one more batch may have been sent" if in_doubt else ""
        say(f"spanmq: sent {number_of(sent, 'message')}{doubt}")
        raise
    except BrokenPipeError:
        say(f"spanmq: sent {number_of(sent, 'message')}; the reader of their ids has gone")
        raise
    except Exception:
        say(f"spanmq: sent {number_of(sent, 'message')} before this:")
        raise
    return sent


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads bodies or messages; `headers` are added to those of each."""

    is_text: bool
    is_message: bool
    headers: dict[str, Any] | None

    def argument(self, text: str) -> Outgoing:
        """Read an argument of the command line."""
        try:
            return self._outgoing(text)
        except (ValueError, RecursionError) as error:
            hint = "" if self.is_text or self.is_message else ". As a text it is '\"…\"', or use --text"
            raise typer.BadParameter(f"the body is not valid JSON: {error}{hint}") from error

    def line(self, line: bytes, number: int) -> Outgoing:
        """Read a line of stdin."""
        try:
            return self._outgoing(line.decode())
        except UnicodeDecodeError as error:
            raise InvalidBodyError(f"line {number} is not UTF-8: {error}") from error
        except (ValueError, RecursionError) as error:
            is_json = not (self.is_text or self.is_message)
            hint = "Each line is one JSON value; --text sends lines as they are." if is_json else None
            raise InvalidBodyError(f"line {number} is not valid JSON: {error}", hint=hint) from error

    def _outgoing(self, text: str) -> Outgoing:
        if self.is_text:
            return Outgoing(text, self.headers)
        if not self.is_message:
            json_of(text)
            return Outgoing(RawJson(text), self.headers)
        message = loads(text)
        if not isinstance(message, dict) or "body" not in message:
            raise ValueError("a message is an object with a body")
        headers, dedup_id = (json_of(dumps(message.get(name))) for name in ("headers", "dedup_id"))
        if headers is not None and not isinstance(headers, dict):
            raise ValueError("headers must be an object")
        if dedup_id is not None and not isinstance(dedup_id, str):
            raise ValueError("dedup_id must be a string")
        merged = {**(headers or {}), **(self.headers or {})} or headers
        return Outgoing(RawJson(dumps(message["body"])), merged, dedup_id)


def line_batches(descriptor: int, size: int) -> Iterator[tuple[list[bytes], int]]:
    """Yield lists of at most `size` lines, and how many bytes of the file have been read.

    They are full when lines arrive fast, smaller otherwise. The last line needs no end. A UTF-8 byte order
    mark, which some editors and shells write, is removed.
    """
    pending: list[bytes] = []
    unfinished: list[bytes] = []  # in pieces: a line of 255 MB comes in 4,000
    pending_bytes = bytes_read = 0
    is_first = is_open = True
    while is_open:
        if pending and not select.select([descriptor], [], [], IDLE_SECONDS)[0]:
            yield pending, bytes_read
            pending, pending_bytes = [], 0
        piece = os.read(descriptor, READ_BYTES)
        is_open = piece != b""
        bytes_read += len(piece)
        first, *others = piece.split(b"\n")
        unfinished.append(first)
        lines: list[bytes] = []
        if others:
            lines = [b"".join(unfinished), *others[:-1]]
            unfinished = others[-1:]
        elif not is_open and (last := b"".join(unfinished)):
            lines = [last]
        for raw_line in lines:
            line = raw_line.removeprefix(BOM_UTF8) if is_first else raw_line
            is_first = False
            if pending and pending_bytes + len(line) > BYTES_PER_CALL:
                yield pending, bytes_read
                pending, pending_bytes = [], 0
            pending.append(line)
            pending_bytes += len(line)
            if len(pending) == size:
                yield pending, bytes_read
                pending, pending_bytes = [], 0
    if pending:
        yield pending, bytes_read
