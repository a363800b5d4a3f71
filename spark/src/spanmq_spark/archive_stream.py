"""The stream reader of an archive: every archived message, once, without changing anything.

An offset is the progress of the stream: all that is seen from one position (`base`), and of the messages that
are seen from a later one (`position`) those with ids up to `id`; `left` are the remaining ones. Both are
fixed, so a replay reads the same rows; a transaction that commits late is in neither, and is read at the next
position. archive_position.sql defines a position; here it is an opaque value. The database notes each under a
token before the checkpoint has it, and refuses those that it does not know since it went back in time.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from pyspark.sql.types import StructType

from spanmq import errors
from spanmq.client import Client
from spanmq.client.calls import KeptClient, argument
from spanmq_spark import calls, rows
from spanmq_spark.calls import Position
from spanmq_spark.options import Bounds, Options
from spanmq_spark.reader import RangePartition, queue_named
from spanmq_spark.stream import UNLIMITED, VERSION, Offset, Stream, check_kind

# How old a position becomes where nothing is archived: of a young one the server knows exactly what is gone.
REFRESH: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Here:
    """A position, whether retention has deleted what was not read before it, of which archive, on which connection."""

    position: Position
    is_gone: bool
    identity: str
    server: Client


class ArchiveStreamReader(Stream):
    """Reads what an archive gets."""

    def __init__(self, options: Options, schema: StructType, server: KeptClient | None = None) -> None:
        if options.receiver is not None:
            raise errors.InvalidArgumentError(
                "the option receiver is for streams over a queue",
                hint="A stream over an archive holds no messages: its position is only in its checkpoint.",
            )
        if options.bounds.has_end:
            raise errors.InvalidArgumentError(
                "a stream has no end", hint="Read a batch, or end the stream by the trigger availableNow."
            )
        super().__init__(options, schema, server)
        self._last: Here | None = None
        self._end: Offset | None = None

    def bound(self) -> None:
        """Record the current position: messages committed later do not belong to this run."""
        self._last = self._look(None)

    def next(self, start: Offset, quantity: int) -> Offset:
        """Return the end of the next batch, or `start`, without waiting."""
        self._end = self._next(start, quantity)
        return self._end

    def settle(self, start: Offset) -> Offset:
        """Return `start`: a stream over an archive holds nothing."""
        return start

    def available(self, start: Offset) -> int:
        """Return how many archived messages are after `start`; before the first batch that is not counted."""
        if start["base"] is None and start["id"] == 0:
            return UNLIMITED
        here = self._look(None).position
        newer = self._piece(start["position"], here, 0, UNLIMITED, is_limited=False)[1]
        return int(start["left"]) + newer

    def report(self) -> Offset | None:
        """Return how many archived messages the stream has not read; None before its first batch.

        `behind_seconds` is the age of the position that it reads (0 where nothing is behind).
        """
        end = self._end
        if end is None:
            return None
        here = self._look(None).position
        behind = end["left"] + self._piece(end["position"], here, 0, UNLIMITED, is_limited=False)[1]
        seconds = int((_at(here) - _at(end["position"])).total_seconds()) if behind else 0
        return {"queue": end["queue"], "behind": behind, "behind_seconds": seconds}

    def partitions(self, start: Offset, end: Offset) -> list[RangePartition]:
        """Cut what is between two offsets into ranges, after a count: retention may have been faster."""
        if not start or not end or start == end:
            return []
        check_kind(end, "archive")
        # A batch that is in the checkpoint, and which this driver has not cut itself.
        self._look_from(end)
        if not end["rows"]:
            return []
        after = start["id"] if start["position"] == end["position"] else 0
        size = max(1, min(rows.ROWS_PER_PARTITION, -(-end["rows"] // self._options.min_partitions)))
        arguments = (
            calls.position("base", end["base"]),
            calls.position("here", end["position"]),
            argument.bigint("after", after),
            argument.bigint("last_id", end["id"]),
            argument.integer("size", size),
        )
        read = calls.columns("first_id", "end_id", "n", "condition")
        ranges = self._call("archive_ranges", read, *arguments)
        with self._server() as server:
            table = rows.view(server, self._options.queue, "a")
        left = sum(n for _, _, n, _ in ranges)
        if left < end["rows"] and self._options.fail_on_data_loss:
            raise self._lost(f"of {end['rows']} archived messages of a batch only {left} are left")
        return [
            # As the queue's name is written, which the option's need not be.
            RangePartition([rows.Range(end["queue"], table, a, b, where=condition, expected=n)])
            for a, b, n, condition in ranges
        ]

    def begin(self, *, is_late: bool = False) -> Offset:
        """Return the offset at which a new checkpoint starts; no message is read yet.

        An archive that joins a stream late begins with all that it has.
        """
        with self._server() as server:
            queue = queue_named(server, self._options.queue)
        bounds = Bounds() if is_late else self._options.bounds
        here = self._look(None)
        now = self._noted(here, None)
        position = now if self._last is None else self._noted(self._last, now)
        base, after, left = (now if bounds.starts_latest else None), 0, 0
        first = bounds.first_id
        if bounds.starts_at is not None:
            with self._server() as server:
                first = rows.first_archived(server, queue, bounds.starts_at)
            # None yet: all that is archived from now on.
            base = now if first is None else None
        if first is not None and first > 1:
            after = first - 1
            left = self._piece(None, position, after, UNLIMITED, is_limited=False)[1]
        return {
            "v": VERSION,
            "queue": queue,
            "archive": here.identity,
            "base": base,
            "position": base or position,
            "id": after,
            "rows": 0,
            "left": left,
        }

    def _next(self, start: Offset, quantity: int) -> Offset:
        """Go on within the position of `start`, and when that is exhausted, to a newer one."""
        check_kind(start, "archive")
        position = start["position"]
        now = self._look_from(start)
        is_first = start["base"] is None and start["id"] == 0
        if start["left"] or is_first:
            last, n, rest, quantity = self._piece(start["base"], position, start["id"], quantity)
            left = n + rest if is_first else start["left"]
            if n < min(left, quantity) and self._options.fail_on_data_loss:
                raise self._lost(f"of {left} archived messages to be read only {n} are left")
            if n:
                return {**start, "id": last, "rows": n, "left": left - n if n == quantity else 0}
        if now.is_gone and self._options.fail_on_data_loss:
            raise self._lost("retention has deleted archived messages that this stream has not read")
        until = self._last or now
        last, n, rest, _ = self._piece(position, until.position, 0, quantity)
        if not n and _at(until.position) - _at(position) < REFRESH:
            return start
        noted = self._noted(until, position)
        return {**start, "base": position, "position": noted, "id": last, "rows": n, "left": rest}

    def _piece(
        self, base: Position | None, position: Position, after: int, quantity: int, *, is_limited: bool = True
    ) -> tuple[int, int, int, int]:
        """Return up to which id the piece is, its messages, those behind it, and its limit of messages."""
        arguments = (
            calls.position("base", base),
            calls.position("here", position),
            argument.bigint("after", after),
            argument.integer("quantity", quantity).to("qty"),
            *argument.optional(argument.bigint, "max_bytes", self._options.max_bytes if is_limited else None),
        )
        read = calls.columns("last_id", "n", "rest", "quantity")
        [(last, n, rest, limit)] = self._call("archive_piece", read, *arguments)
        return last or 0, n, rest, limit

    def _look(self, start: Position | None) -> Here:
        """Return the position as of now; raises PositionUnknownError if the database does not know `start`."""
        with self._server() as server:
            return Here(*server.admin.run(calls.archive_position(self._options.queue, start)), server)

    def _noted(self, here: Here, follows: Position | None) -> Position:
        """Return a position with the token under which the database knows it.

        On the connection that returned the position: another may be one to a server that lacks what it shows.
        """
        with self._server() as server:
            if server is not here.server:
                raise errors.ConnectionLostError(
                    f"queue {self._options.queue}: the connection was lost while a batch was cut",
                    hint="Nothing was read: start the stream again.",
                )
            previous = None if follows is None else follows["token"]
            token = server.admin.run(calls.note_position(self._options.queue, previous))
        return {**here.position, "token": token}

    def _look_from(self, offset: Offset) -> Here:
        """Return the position as of now; raises PositionUnknownError, or NotFoundError for another archive's offset."""
        try:
            here = self._look(offset["position"])
        except errors.PositionUnknownError:
            self._check(offset, self._look(None).identity)
            raise
        self._check(offset, here.identity)
        return here

    def _check(self, offset: Offset, identity: str) -> None:
        if offset["archive"] != identity:
            raise errors.NotFoundError(
                f"the checkpoint is not of this archive of queue {self._options.queue}",
                hint="It is of another queue or server, or the queue was created again. Use a new checkpoint.",
                queue=self._options.queue,
            )

    def _lost(self, what: str) -> errors.MessagesLostError:
        return errors.MessagesLostError(
            f"queue {self._options.queue}: {what}",
            hint="With failOnDataLoss=false the stream continues without them.",
            queue=self._options.queue,
        )


def _at(position: Position) -> datetime:
    return datetime.fromisoformat(position["at"])
