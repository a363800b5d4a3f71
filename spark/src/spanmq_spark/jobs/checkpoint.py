"""The files of a stream's checkpoint: positions in a queue or an archive, and the epochs that it has written."""

import json
from collections.abc import Callable, Container
from itertools import count
from pathlib import Path
from typing import Any

from spanmq.errors import PipelineError
from spanmq.model.queue import folded
from spanmq_spark import calls, rows
from spanmq_spark.writer import STREAM

Offset = dict[str, Any]


def restore_checkpoint(dsn: str, checkpoint: Path, queue: str, *, is_dry_run: bool) -> int:
    """Set a queue's offsets back to the newest that the database knows; return by how many batches of the stream.

    A new receiver takes the place of one of which the database knows no batch. Raises PipelineError if no
    offset over an archive is known, or the checkpoint has none of the queue.
    """
    numbers = _numbers(checkpoint, "commits")
    # A stream may have several sources over one queue.
    sources = max((len(offsets_of(checkpoint, n, queue)) for n in numbers), default=0)
    if not sources:
        raise PipelineError(f"{checkpoint} is not the checkpoint of a stream over queue {queue}", queue=queue)
    return max(
        _restore_source(dsn, checkpoint, queue, source, is_dry_run=is_dry_run) for source in range(sources)
    )


def _restore_source(dsn: str, checkpoint: Path, queue: str, source: int, *, is_dry_run: bool) -> int:
    """Set the offset of one source over a queue back; return by how many batches."""

    def offsets_in(number: int) -> list[Offset]:
        return offsets_of(checkpoint, number, queue)[source : source + 1]

    offsets = [(n, offset) for n in _numbers(checkpoint, "commits") for offset in offsets_in(n)]
    newest, current = offsets[-1]
    after = offsets_in(newest + 1)
    with rows.connected(dsn) as server:
        receivers = {receiver.receiver_id: receiver.label for receiver in server.admin.receivers.list(queue)}
        tokens = [token for offset in [*dict(offsets).values(), *after] for token in _tokens(offset)]
        known = server.admin.run(calls.known_positions(queue, tokens))
    known_offsets = [
        (n, offset)
        for n, offset in offsets
        if known.issuperset(_tokens(offset)) and offset.get("receiver", "") in {*receivers, ""}
    ]
    is_whole = all(known.issuperset(_tokens(offset)) for offset in after)
    if known_offsets and known_offsets[-1][0] == newest and is_whole:
        return 0
    if known_offsets:
        last, offset = known_offsets[-1]
    elif "receiver" in current:
        last, offset = -1, current
    else:
        raise PipelineError(
            f"the database knows no offset of {checkpoint}",
            hint="Use a new checkpoint, with startingTimestamp.",
            queue=queue,
        )
    if not is_dry_run:
        if not known_offsets:
            offset = _opened(dsn, queue, current, receivers)
        # All of them: the repair of a sink may set the stream back to any.
        for number in range(last + 1, newest + 2):
            write_offset(checkpoint, number, queue, source, offset)
    return newest - last


def is_read_by(checkpoint: Path, queue: str) -> bool:
    """Return whether a checkpoint is of a stream that reads a queue, or its archive."""
    numbers = _numbers(checkpoint, "offsets")
    return any(offsets_of(checkpoint, number, queue) for number in numbers)


def query_of(checkpoint: Path) -> str:
    """Return the id of a checkpoint's stream; raises PipelineError for what is not a checkpoint."""
    metadata = checkpoint / "metadata"
    if not metadata.exists():
        raise PipelineError(f"{checkpoint} is not the checkpoint of a stream")
    return str(json.loads(metadata.read_text("utf-8"))["id"])


def published_in(dsn: str, queue: str, checkpoint: Path) -> list[int]:
    """Return the epochs of a checkpoint's stream that a queue has."""
    with rows.connected(dsn) as server:
        return server.admin.run(calls.published_epochs(queue, f"{STREAM}{query_of(checkpoint)}"))


def restore_sink(checkpoint: Path, target: str, published: list[int], *, is_dry_run: bool) -> list[int]:
    """Set a stream that writes into a target back to the newest of the epochs that it has; return the missing ones.

    They run again, out of what the stream's source then has. Raises PipelineError where the checkpoint has forgotten
    them, or was itself set back, or the target has no epoch of the stream.
    """
    if not published:
        raise PipelineError(
            f"{checkpoint} is not the checkpoint of a stream over {target}, nor has that an epoch of it",
            hint="If the database was restored to the time before the first epoch, start with a new checkpoint.",
        )
    newest, offsets, commits = published[-1], _numbers(checkpoint, "offsets"), _numbers(checkpoint, "commits")
    if newest > max(offsets, default=-1):
        raise PipelineError(
            f"{checkpoint} ends before epoch {newest}, which {target} has",
            hint="The checkpoint was set back to an earlier time: use a newer copy of it. Or a new checkpoint, of a"
            f" stream that begins after what {target} has.",
        )
    missing = [number for number in commits if number > newest]
    if not missing and offsets[-1] <= newest + 1:
        return []
    if not {newest, newest + 1} <= {*offsets}:
        raise PipelineError(
            f"{checkpoint} has forgotten epoch {newest + 1}, which {target} lacks",
            hint=f"Use a new checkpoint, of a stream that begins with what {target} lacks.",
        )
    if not is_dry_run:
        # Killed between two of them, another run finds what is left.
        for log, last in (("commits", newest), ("offsets", newest + 1)):
            for number in (n for n in reversed(_numbers(checkpoint, log)) if n > last):
                for name in (str(number), f".{number}.crc"):
                    (checkpoint / log / name).unlink(missing_ok=True)
    return missing


def _numbers(checkpoint: Path, log: str) -> list[int]:
    return sorted(int(path.name) for path in (checkpoint / log).glob("[0-9]*"))


def offsets_of(checkpoint: Path, number: int, queue: str) -> list[Offset]:
    """Return the offsets of a queue, or its archive, in a batch of the stream: one of each source over it."""
    offsets: list[Offset] = []
    _change(checkpoint, number, queue, offsets.append)
    return offsets


def write_offset(checkpoint: Path, number: int, queue: str, source: int, offset: Offset) -> None:
    """Replace the offset of a source in a batch of the stream, if it has the batch; the first over the queue is 0."""
    places = count()
    _change(checkpoint, number, queue, lambda _: offset if next(places) == source else None)


def move_checkpoint(checkpoint: Path, queue: str, system: str, receivers: Container[str]) -> int:
    """Write the system's identifier into each offset of a queue, and return how many had another.

    Raises PipelineError for an offset whose receiver is none of the queue's, and without any.
    """
    is_any = False
    moved = 0

    def move(offset: Offset) -> Offset | None:
        nonlocal is_any, moved
        if "receiver" not in offset:
            return None
        if offset["receiver"] not in receivers:
            raise PipelineError(
                f"queue {queue} has no receiver {offset['receiver']}, which {checkpoint} is of",
                hint="This database is not the checkpoint's. Use a new checkpoint.",
                queue=queue,
            )
        is_any = True
        if offset["system"] == system:
            return None
        moved += 1
        return {**offset, "system": system}

    for number in _numbers(checkpoint, "offsets"):
        _change(checkpoint, number, queue, move)
    if not is_any:
        raise PipelineError(
            f"{checkpoint} is not the checkpoint of a stream over queue {queue}",
            hint="A stream over an archive needs a new one, with startingTimestamp.",
            queue=queue,
        )
    return moved


def _change(checkpoint: Path, number: int, queue: str, change: Callable[[Offset], Offset | None]) -> None:
    """Replace the offsets of a queue in a batch of the stream, if it has the batch, by those that `change` returns."""
    path = checkpoint / "offsets" / str(number)
    if not path.exists():
        return
    lines = path.read_text("utf-8").splitlines()
    is_changed = False
    # A version, what Spark notes of the batch, and the offset of each source.
    for place, line in enumerate(lines[2:], 2):
        written = json.loads(line) if line.startswith("{") else {}
        # A source of several queues has an offset of each.
        several = written.get("queues")
        queues = {"": written} if several is None else several
        for name, offset in [item for item in queues.items() if _is_of(item[1], queue)]:
            if (new := change(offset)) is not None:
                is_changed = True
                queues[name] = new
                lines[place] = json.dumps(new if several is None else {**written, "queues": queues})
    if is_changed:
        draft = path.with_name(f".{path.name}.draft")
        draft.write_text("\n".join(lines), "utf-8")
        # Spark's checksum of what was there.
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        draft.replace(path)


def _is_of(offset: Offset, queue: str) -> bool:
    """Return whether an offset is one of this queue, or of its archive."""
    is_ours = ("receiver" in offset and "system" in offset) or "archive" in offset
    return is_ours and folded(str(offset.get("queue", ""))) == folded(queue)


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
