"""The calls of the clients of one queue, written as they begin and end.

Each client has a file of JSON lines in a folder. A line is the beginning of a call or its end; a call without an end
is one whose answer never came: it may have taken effect, and at any time since. Times are nanoseconds of the system's
monotonic clock, so the processes of one machine share them.

| verb | argument | answer (`got`) |
|---|---|---|
| send | groups: one for each message, null without one | ids, in that order |
| receive | seconds: of the lease | pairs of id and lease (null: the call has none) |
| take | | ids: a receive that settles at once |
| settle | ids, lease, into: gone, dead or archived; error | ids that it settled |
| free | ids, lease: nack, release, a delay that may be shorter than the lease | ids that it freed |
| extend | ids, lease, seconds | ids that it holds for longer |
| claim | | pairs of id and lease: of a batch that a stream holds until it confirms it; it may come again |
| confirm | lease | nothing: the batch is settled, or was before |
| export | ids: that a lake has, all or some | nothing: the database has noted them |
| count | | how many messages the metrics counted |
| look | | left: ids; dead: pairs of id and error; archived, and exported (rows of a lake): ids or null. Comes last |
"""

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

NEVER = 1 << 62


class Call(msgspec.Struct, eq=False, omit_defaults=True):
    """One call of a client, and a line of its file: the beginning has a verb, the end has the answer.

    `wal`, `wal_after`: positions of the log before it began and after it ended, if the client asked.
    """

    verb: str = ""
    began: int = 0
    ended: int = NEVER
    ids: list[int] = []
    groups: list[str | None] = []
    seconds: float = 0.0
    lease: int | None = None
    into: str = "gone"
    error: str | None = None
    wal: int = 0
    wal_after: int = NEVER
    got: Any = None
    number: int = 0
    # It surely had no effect.
    failed: bool = False

    @property
    def is_answered(self) -> bool:
        """Return whether its answer came."""
        return self.ended != NEVER


_LINES = msgspec.json.Decoder(list[Call])


class Recorder:
    """Writes the calls of one client."""

    __slots__ = ("_file", "_numbers")

    def __init__(self, folder: Path, client: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        # Without a buffer: what a killed process has in one is lost.
        self._file = (folder / f"{client}.jsonl").open("ab", buffering=0)
        # Threads may share it. The same client may have recorded before: each of its numbers took some bytes.
        self._numbers = itertools.count(self._file.tell() + 1)

    def call(self, verb: str, **arguments: Any) -> "Pending":
        """Write the beginning of a call. Its end is written at the end of a `with`, or by `end()`."""
        number = next(self._numbers)
        self._write(Call(number=number, began=time.monotonic_ns(), verb=verb, **arguments))
        return Pending(self, number)

    def _write(self, line: Call) -> None:
        # A call that outlives the recording has no end.
        with suppress(ValueError):
            self._file.write(msgspec.json.encode(line) + b"\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


@dataclass(slots=True)
class Pending:
    """A call under way; set `got` to its answer."""

    recorder: Recorder
    number: int
    got: Any = None
    wal_after: int = NEVER

    def end(self) -> None:
        """Write the answer: in a transaction, after its commit."""
        now = time.monotonic_ns()
        self.recorder._write(Call(number=self.number, ended=now, got=self.got, wal_after=self.wal_after))

    def fail(self) -> None:
        """Write that the call surely had no effect."""
        self.recorder._write(Call(number=self.number, failed=True))

    def raised(self, error: BaseException) -> None:
        """Write that the call had no effect, if its error says so."""
        # Without a state the connection is lost; a session that is ended (57P) may have committed before.
        state: str | None = getattr(error, "sqlstate", None)
        if state and not state.startswith("57P"):
            self.fail()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.end()
        else:
            self.raised(error)


def read(folder: Path) -> list[Call]:
    """Read the calls of all clients, in the order in which they began, without those that had no effect."""
    calls: list[Call] = []
    for path in sorted(folder.glob("*.jsonl")):
        begun: dict[int, Call] = {}
        for line in _lines(path):
            if line.verb:
                begun[line.number] = line
            elif line.failed:
                del begun[line.number]
            else:
                call = begun[line.number]
                call.ended, call.got, call.wal_after = line.ended, line.got, line.wal_after
        calls += begun.values()
    calls.sort(key=lambda call: call.began)
    return calls


def _lines(path: Path) -> Iterator[Call]:
    with path.open("rb") as file:
        while lines := file.readlines(1 << 20):
            # A kill may have cut off the last line.
            if not lines[-1].endswith(b"\n"):
                lines.pop()
            yield from _LINES.decode(b"[" + b",".join(lines) + b"]")


def kept(calls: list[Call], position: int) -> list[Call]:
    """Return what is left of a history that was cut at a position of the log, as by the promotion of a standby.

    Calls that ended before it are as they were, those that began after it are gone; of the others nobody knows.
    """
    return _cut(calls, lambda call: call.wal_after <= position, lambda call: call.wal < position)


def seen(calls: list[Call], since: int, until: int) -> list[Call]:
    """Return what is left of a history in a snapshot, as of a dump, that was taken between two times."""
    return _cut(calls, lambda call: call.ended < since, lambda call: call.began < until)


def _cut(
    calls: list[Call], has_happened: Callable[[Call], bool], may_have: Callable[[Call], bool]
) -> list[Call]:
    result = []
    for call in calls:
        if has_happened(call):
            result.append(call)
        elif may_have(call):
            result.append(msgspec.structs.replace(call, ended=NEVER, got=None))
    return result
