"""The noun `encryption`: the keys of encrypted bodies."""

import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spanmq.cli.connect import client
from spanmq.cli.option import AsJson, Dsn, QueueName
from spanmq.cli.output import Output
from spanmq.cli.verbs import Commands
from spanmq.codec.body import RawJson
from spanmq.codec.encryption import key_ids_of, new_line, read_keys
from spanmq.errors import EncryptionError
from spanmq.model.queue import folded

if TYPE_CHECKING:
    from spanmq.client import Client
    from spanmq.model import Batch

encryption = Commands()

PAGE = 1_000


@encryption.command("add-key")
def add_key(
    path: Annotated[
        Path, typer.Argument(metavar="FILE", help="The file of keys; created if it does not exist.")
    ],
    key_id: Annotated[str | None, typer.Option("--id", help="The key's id.", show_default="the time")] = None,
    as_json: AsJson = False,
) -> None:
    """Add a key to a file: from the next start on it encrypts; the others continue to decrypt. Copy the file
    to all receivers before any sender uses it.

    $ spanmq encryption add-key /etc/spanmq/keys
    """
    output = Output(as_json=as_json)
    chosen = key_id or datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    line = new_line(chosen)
    try:
        text = path.read_text("utf-8") if path.exists() else ""
        if chosen in read_keys(text, str(path)):
            raise EncryptionError(f"{str(path)!r} has a key {chosen!r}")
        # Readable by its owner only, from the first byte on.
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a") as file:
            # The last line may lack its end.
            file.write(f"{line}\n" if not text or text.endswith("\n") else f"\n{line}\n")
    except UnicodeDecodeError as error:
        raise EncryptionError(f"the file of keys {str(path)!r} is not UTF-8") from error
    except OSError as error:
        raise EncryptionError(f"the file of keys {str(path)!r} can't be written: {error.strerror}") from error
    output.done(f"added key {chosen} to {path}", key=chosen, path=str(path))


@encryption.command("in-use")
def in_use(queue: QueueName, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Count a queue's bodies by the key that sealed them: messages, archive, dead letters, schedules, and
    batches that have not ended.

    A key that is not listed may be removed from the file, unless it sealed results, or messages that are
    kept for a replay: these are not counted.

    $ spanmq encryption in-use orders
    """
    output = Output(as_json=as_json)
    records: list[dict[str, Any]] = []
    with client(dsn, sealed=True) as opened:
        looks: dict[str, Callable[[int], list[Any]]] = {
            "messages": lambda after: opened.peek(queue, PAGE, after=after),
            "archive": lambda after: opened.inspect.archive(queue, PAGE, after=after),
            "dead letters": lambda after: opened.dead_letters.list(
                queue, redriven=None, after=after, limit=PAGE
            ),
        }
        counts = {where: _count(look) for where, look in looks.items()}
        schedules = [
            schedule for schedule in opened.schedules.list() if folded(schedule.queue) == folded(queue)
        ]
        counts["schedules"] = key_ids_of(_text(schedule.body) for schedule in schedules)
        counts["batches"] = key_ids_of(_text(batch.body) for batch in _open_batches(opened, queue))
        for where, keys in counts.items():
            for key_id, count in sorted(keys.items()):
                records.append({"where": where, "key": key_id or None, "bodies": count})
    output.records(records, empty="no bodies")


def _count(look: Callable[[int], list[Any]]) -> dict[str, int]:
    counts: dict[str, int] = {}
    after = 0
    while page := look(after):
        for key_id, count in key_ids_of(_text(message.body) for message in page).items():
            counts[key_id] = counts.get(key_id, 0) + count
        after = max(getattr(record, "dead_letter_id", None) or record.message_id for record in page)
    return counts


def _open_batches(opened: "Client", queue: str) -> Iterator["Batch"]:
    before = None
    while page := opened.batches.list(queue, before=before, limit=PAGE):
        yield from (batch for batch in page if batch.ended_at is None)
        before = page[-1].batch_id


def _text(body: object) -> str | bytes:
    return body.text if isinstance(body, RawJson) else "null"
