"""The files of a stream's checkpoint that name positions in a queue or an archive."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spanmq.errors import PipelineError
from spanmq.spark import calls, rows

Offset = dict[str, Any]


def restore_checkpoint(dsn: str, checkpoint: Path, queue: str, *, is_dry_run: bool) -> int:
    """Set a queue's offset back to the newest that the database knows; return by how many batches of the stream.

    A new receiver takes the place of one of which the database knows no batch. Raises PipelineError if no
    offset over an archive is known, or the checkpoint has none of the queue.
    """
    numbers = sorted(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*"))
    offsets = [(n, offset) for n in numbers for offset in offsets_of(checkpoint, n, queue)]
    if not offsets:
        raise PipelineError(f"{checkpoint} is not the checkpoint of a stream over queue {queue}", queue=queue)
    newest, current = offsets[-1]
    with rows.connected(dsn) as server:
        receivers = {each.receiver_id: each.label for each in server.admin.receivers.list(queue)}
        tokens = [token for _, offset in offsets for token in _tokens(offset)]
        known = server.admin.run(calls.known_positions(queue, tokens))
    found = [
        (n, offset)
        for n, offset in offsets
        if known.issuperset(_tokens(offset)) and offset.get("receiver", "") in {*receivers, ""}
    ]
    after = {token for offset in offsets_of(checkpoint, newest + 1, queue) for token in _tokens(offset)}
    with rows.connected(dsn) as server:
        is_whole = after <= server.admin.run(calls.known_positions(queue, list(after)))
    if found and found[-1][0] == newest and is_whole:
        return 0
    if found:
        last, offset = found[-1]
    elif "receiver" in current:
        last, offset = -1, current
    else:
        raise PipelineError(
            f"the database knows no offset of {checkpoint}",
            hint="Use a new checkpoint, with startingTimestamp.",
            queue=queue,
        )
    if not is_dry_run:
        if not found:
            offset = _opened(dsn, queue, current, receivers)
        for number in (newest, newest + 1):
            write_offset(checkpoint, number, queue, offset)
    return newest - last


def offsets_of(checkpoint: Path, number: int, queue: str) -> Iterator[Offset]:
    """Yield the offsets of a queue, or its archive, in a batch of the stream."""
    path = checkpoint / "offsets" / str(number)
    # A version, what Spark notes of the batch, and the offset of each source.
    for line in path.read_text("utf-8").splitlines()[2:] if path.exists() else ():
        source = json.loads(line) if line.startswith("{") else {}
        for offset in source.get("queues", {"": source}).values():
            if is_of(offset, queue):
                yield offset


def write_offset(checkpoint: Path, number: int, queue: str, offset: Offset) -> None:
    """Replace the offset of a queue in a batch of the stream, if it has the batch."""
    path = checkpoint / "offsets" / str(number)
    if not path.exists():
        return
    lines = path.read_text("utf-8").splitlines()
    for place, line in enumerate(lines[2:], 2):
        source = json.loads(line) if line.startswith("{") else {}
        if is_of(source, queue):
            lines[place] = json.dumps(offset)
        elif name := next(
            (name for name, each in source.get("queues", {}).items() if is_of(each, queue)), None
        ):
            source["queues"][name] = offset
            lines[place] = json.dumps(source)
    write_lines(path, lines)


def write_lines(path: Path, lines: list[str]) -> None:
    """Replace a file of a checkpoint, whole or not at all."""
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text("\n".join(lines), "utf-8")
    # Spark's checksum of what was there.
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    draft.replace(path)


def is_of(offset: Offset, queue: str) -> bool:
    """Return whether an offset is one of this queue, or of its archive."""
    is_ours = ("receiver" in offset and "system" in offset) or "archive" in offset
    return is_ours and str(offset.get("queue", "")).lower() == queue.lower()


def _tokens(offset: Offset) -> list[str]:
    """Return the tokens that the database must know."""
    if "receiver" in offset:
        return [offset["token"]] if offset["lease"] else []
    return [offset[name]["token"] for name in ("base", "position") if offset[name] is not None]


def _opened(dsn: str, queue: str, offset: Offset, receivers: dict[str, str | None]) -> Offset:
    """Open a receiver in place of another, which returns its messages to the queue."""
    receiver, label = offset["receiver"], receivers.get(offset["receiver"])
    with rows.connected(dsn) as server:
        if receiver in receivers:
            server.admin.receivers.release(queue, receiver)
        [(receiver, _, settled, system, token)] = server.admin.run(calls.receiver_open(queue, label=label))
    return {**offset, "receiver": receiver, "lease": settled, "system": system, "token": token}
