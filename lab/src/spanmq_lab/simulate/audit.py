"""The audit of a run: checks from its log alone that each message was handled once and in order.

The faults:

- lost: sent, and neither handled nor dead, although the run continued until the queue was empty. In a run
  that was stopped, the queue must hold the missing messages. When only a log is read, a message is lost if
  a later message of its key was handled.
- duplicated: handled again without cause. A cause is a failure, a lease that expired (by the server's clock),
  or, in an engine without leases, the death of its worker.
- out of order: begun before an earlier message of the same producer and key was settled.
- dead without cause, handled but never sent, received but sent by another program, a key without
  progress while workers are idle.
- sent before its sending is recorded: such a message could be lost unnoticed.
- a log that does not end with the number of its lines: the rest of it is missing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from spanmq_lab.simulate.options import Options
from spanmq_lab.simulate.record import Record

# A key makes no progress if nothing happened in it for this many seconds, and for this share of the run.
STILL_SECONDS: Final = 2.0
STILL_SHARE: Final = 0.2


@dataclass(frozen=True, slots=True)
class Check:
    """One check; `ids` are the messages, or keys, that fail it."""

    name: str
    ids: tuple[str, ...] = ()
    detail: str = ""

    @property
    def passed(self) -> bool:
        """Return whether the check passed."""
        return not self.ids


@dataclass(slots=True)
class Line:
    """The messages of one producer and key, which are to be handled in the order of their numbers, from 1."""

    type: str
    key: str
    producer: int
    stories: list[Story] = field(default_factory=list)
    # The number of settled messages at the start of the line.
    settled: int = 0
    last_at: float = 0.0

    def advance(self) -> None:
        """Skip settled messages."""
        while self.settled < len(self.stories) and self.stories[self.settled].is_settled:
            self.settled += 1

    def was_settled_after(self, story: Story) -> bool:
        """Return whether a later message was settled."""
        return any(later.is_settled for later in self.stories[story.number :])

    def unsettled_before(self, story: Story) -> Iterator[Story]:
        """Yield the unsettled messages before this one, up to the first that cannot be dead."""
        for place in range(self.settled, story.number - 1):
            earlier = self.stories[place]
            if not earlier.is_settled:
                yield earlier
                if not earlier.may_be_given_up:
                    return


@dataclass(slots=True)
class Story:
    """One message. Times are seconds since the run began; None: it did not happen."""

    id: int
    line: Line
    number: int
    is_poison: bool
    sent_at: float | None = None
    started_at: float | None = None
    done_at: float | None = None
    starts: int = 0
    dones: int = 0
    failures: int = 0
    deaths: int = 0
    # According to its last delivery: a worker's death counts for all messages that it held.
    attempt: int = 0
    deaths_before: int = 0
    is_dead: bool = False
    # About the last delivery: the end of the lease, and whether its worker failed it or died.
    until: float | None = None
    has_failed: bool = False
    is_orphan: bool = False

    @property
    def is_settled(self) -> bool:
        """Return whether the message is handled or dead."""
        return self.dones > 0 or self.is_dead

    @property
    def may_be_given_up(self) -> bool:
        """Return whether it may be a dead letter that the log does not contain yet."""
        return self.has_failed or self.is_orphan


class Audit:
    """Reads the records in order; `checks` returns the result at the end."""

    def __init__(self, options: Options) -> None:
        self.stories: dict[int, Story] = {}
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []
        self.sent = self.handled = self.dead = 0
        self.began_at: float | None = None
        self.ending: str | None = None
        # The number of lines before the last one, according to the last line.
        self.signed_off: int | None = None
        self.last_at = 0.0
        # Messages a second of all producers; None: no producer has ended.
        self.sent_rate: float | None = None
        # When workers were killed.
        self.kills: list[float] = []
        # The message in flight of each worker, and since when.
        self.in_work: dict[int, tuple[Story, float]] = {}
        # By type: seconds with messages in flight, the first start and the last completion.
        self.busy: defaultdict[str, float] = defaultdict(float)
        self.first_at: dict[str, float] = {}
        self.done_at: dict[str, float] = {}
        self._options = options
        self._lines: dict[tuple[object, ...], Line] = {}
        self._last_of_worker: dict[int, Story] = {}
        self._idle: dict[int, tuple[int, float]] = {}
        self._usage: dict[tuple[int, int], Record] = {}
        self._lives: Counter[int] = Counter()
        self._unknown: list[int] = []
        self._duplicated: list[int] = []
        self._disordered: list[tuple[Story, Story]] = []
        self._doubtful: list[tuple[Story, Story]] = []
        self._without_cause: list[int] = []
        self._sent_twice: list[int] = []
        self._unannounced: list[int] = []
        # Whether the last record is the run's end.
        self._is_ended = False
        self._foreign: dict[str, None] = {}

    @property
    def waiting(self) -> int:
        """Return the number of messages that are sent and neither handled nor dead."""
        return self.sent - self.handled - self.dead

    def add(self, record: Record) -> None:
        """Read the next record of the log."""
        event = record["event"]
        self.counts[event] += 1
        self._is_ended = event == "run_stopped"
        # A method for each event that the audit is about.
        if (take := getattr(self, f"_on_{event}", None)) is not None:
            take(record)

    def checks(
        self, *, is_complete: bool, left: int | None, lines: int, torn: int, ended_at: float
    ) -> tuple[Check, ...]:
        """Check a log of `lines` lines; `left` is the number of messages in the queue, None if unknown."""
        return (
            self._check_lost(is_complete=is_complete, left=left),
            check("nothing duplicated", self._duplicated),
            self._check_order(),
            check("nothing handled that was not sent", self._unknown),
            check("no number sent twice", self._sent_twice),
            check("nothing sent before its sending was recorded", self._unannounced),
            check("no message of another sender", [*self._foreign], "they became dead letters"),
            check("no dead letter without cause", self._without_cause),
            self._check_still(ended_at),
            check("every line of the log is a record", [f"{torn} lines"] if torn else []),
            self._check_end(lines),
        )

    def usage(self) -> tuple[int, int, float]:
        """Return the polls, those without messages, and the CPU seconds of workers and producers."""
        records = self._usage.values()
        return (
            sum(record.get("polls", 0) for record in records),
            sum(record.get("idle_polls", 0) for record in records),
            sum(record.get("cpu_seconds", 0.0) for record in records),
        )

    def _on_sending(self, record: Record) -> None:
        if record["id"] in self.stories:
            self._sent_twice.append(record["id"])
            return
        place = record["producer"], record["type"], record["key"]
        line = self._lines.get(place)
        if line is None:
            line = self._lines[place] = Line(record["type"], record["key"], record["producer"])
        story = Story(record["id"], line, record["number"], bool(record.get("poison")))
        line.stories.append(story)
        self.stories[story.id] = story
        if len(line.stories) != story.number:
            self._sent_twice.append(story.id)
            story.number = len(line.stories)

    def _on_sent(self, record: Record) -> None:
        for message in record["ids"]:
            story = self.stories.get(message)
            if story is None:
                self._unannounced.append(message)
            elif story.sent_at is None:
                story.sent_at = record["at"]
                self.sent += 1

    def _on_started(self, record: Record) -> None:
        story = self._known(record["id"])
        if story is None:
            return
        self.last_at = story.line.last_at = record["at"]
        if story.starts and not self._has_cause(story, record):
            self._duplicated.append(story.id)
        for earlier in story.line.unsettled_before(story):
            (self._doubtful if earlier.may_be_given_up else self._disordered).append((story, earlier))
        if story.starts:
            self.counts["again"] += 1
        else:
            story.started_at = record["at"]
        story.starts += 1
        story.attempt = record.get("attempt", 0)
        story.deaths_before = self._lives.total()
        story.until = record.get("until")
        story.has_failed = story.is_orphan = False
        self.first_at.setdefault(story.line.type, record["at"])
        self._last_of_worker[record["worker"]] = story
        self.in_work[record["worker"]] = story, record["at"]

    def _has_cause(self, story: Story, record: Record) -> bool:
        if story.has_failed:
            return True
        if story.until is None:
            return story.is_orphan
        return record.get("taken_at") is not None and record["taken_at"] >= story.until

    def _on_done(self, record: Record) -> None:
        story = self._ended(record)
        if story is None:
            return
        story.dones += 1
        if story.dones > story.starts:
            self._duplicated.append(story.id)
        if story.dones == 1:
            story.done_at = record["at"]
            self.handled += 1
            self.dead -= story.is_dead
            story.is_dead = False
        else:
            self.counts["handled_again"] += 1
        story.line.advance()

    def _on_failed(self, record: Record) -> None:
        story = self._ended(record)
        if story is not None:
            story.has_failed = True
            story.failures += 1

    def _ended(self, record: Record) -> Story | None:
        story = self._known(record["id"])
        held = self.in_work.pop(record["worker"], None)
        if story is not None:
            at = self.last_at = story.line.last_at = self.done_at[story.line.type] = record["at"]
            if held is not None and held[0] is story:
                self.busy[story.line.type] += at - held[1]
        return story

    def _on_settled(self, record: Record) -> None:
        self.counts[f"settled {record['outcome']}"] += len(record["ids"])
        if record["outcome"] == "dead":
            self._on_dead(record)

    def _on_dead(self, record: Record) -> None:
        for story in filter(None, map(self._known, record["ids"])):
            if story.is_dead:
                continue
            if not self._may_be_dead(story):
                self._without_cause.append(story.id)
            story.is_dead = True
            self.dead += not story.dones
            story.line.advance()

    def _on_foreign(self, record: Record) -> None:
        self._foreign[f"{record['queue']}/{record['message_id'] or 'unreadable'}"] = None

    def _may_be_dead(self, story: Story) -> bool:
        if story.is_poison or story.failures + story.deaths >= self._options.max_attempts:
            return True
        # A message that a killed worker had received but not begun lost an attempt that is not in the log.
        if story.attempt + self._lives.total() - story.deaths_before >= self._options.max_attempts:
            return True
        is_final = self._options.failure_category in ("PERMANENT", "BUSINESS")
        return story.has_failed and (is_final or story.attempt >= self._options.max_attempts)

    def _on_worker(self, record: Record) -> None:
        worker = record["worker"]
        self._usage[self._lives[worker], worker] = record
        before, _ = self._idle.get(worker, (0, 0.0))
        if record["idle_polls"] != before:
            self._idle[worker] = record["idle_polls"], record["at"]

    def _on_failure(self, record: Record) -> None:
        self.failures.append(str(record["error"]))
        self.counts["failure is final"] += bool(record.get("is_final"))
        self._orphaned(record)

    def _on_workers_started(self, record: Record) -> None:
        self.began_at = record["at"]

    def _on_producer_ended(self, record: Record) -> None:
        self._usage[-1, record["producer"]] = record
        if record.get("seconds"):
            self.sent_rate = (self.sent_rate or 0.0) + record["count"] / record["seconds"]

    def _on_run_stopped(self, record: Record) -> None:
        self.ending = str(record["ending"])
        lines = record.get("lines")
        self.signed_off = lines if isinstance(lines, int) else None

    def _on_worker_killed(self, record: Record) -> None:
        self.kills.append(record["at"])
        self._orphaned(record)

    def _orphaned(self, record: Record) -> None:
        worker = record.get("worker", -1)
        self._lives[worker] += 1
        self.in_work.pop(worker, None)
        if (story := self._last_of_worker.get(worker)) is not None:
            story.deaths += not story.is_orphan
            story.is_orphan = True

    def _known(self, message: int) -> Story | None:
        story = self.stories.get(message)
        if story is None:
            self._unknown.append(message)
        return story

    def _check_lost(self, *, is_complete: bool, left: int | None) -> Check:
        missing = [
            story for story in self.stories.values() if story.sent_at is not None and not story.is_settled
        ]
        if is_complete:
            return check("nothing lost", [story.id for story in missing])
        if left is None:
            return check(
                "nothing lost", [story.id for story in missing if story.line.was_settled_after(story)]
            )
        if left < len(missing):
            detail = f"{len(missing):,} were not handled, but only {left:,} are left: some of these are lost"
            return check("nothing lost", [story.id for story in missing], detail)
        return Check("nothing lost", detail=f"{len(missing):,} were left when the run was stopped")

    def _check_order(self) -> Check:
        wrong = [
            *self._disordered,
            *((story, earlier) for story, earlier in self._doubtful if not earlier.is_dead),
        ]
        return check(
            "order kept in each key",
            [f"{story.id} before {earlier.id}" for story, earlier in wrong],
            f"of {len({(line.type, line.key) for line in self._lines.values()}):,} keys",
        )

    def _check_still(self, ended_at: float) -> Check:
        began_at = self.began_at or 0.0
        pause = max(STILL_SECONDS, STILL_SHARE * (ended_at - began_at), self._options.quiet_seconds)
        since = ended_at - pause
        if since < began_at:
            return Check("every key made progress")
        idle_types = {
            f"type{number + 1}"
            for worker, (_, at) in self._idle.items()
            if at > since
            for number in self._options.types_of_worker(worker)
        }
        still: dict[tuple[str, str], list[Line]] = {}
        for line in self._lines.values():
            still.setdefault((line.type, line.key), []).append(line)
        names = [
            f"{kind}/{key}"
            for (kind, key), lines in still.items()
            if kind in idle_types
            and all(line.last_at < since for line in lines)
            and any(waits(line.stories[line.settled :][:1], since) for line in lines)
        ]
        return check(
            "every key made progress", names, f"without progress for {pause:.0f} s while workers were idle"
        )

    def _check_end(self, lines: int) -> Check:
        name = "the log is complete"
        if self.signed_off is None:
            detail = "it does not end with the number of its lines: it was cut off, or its run was killed"
            return check(name, [f"{lines:,} lines"], detail)
        if not self._is_ended:
            return check(name, [f"{lines:,} lines"], "records follow its end")
        expected = self.signed_off + 1
        return check(name, [f"{lines:,} of {expected:,} lines"] if lines != expected else [])


def check(name: str, offenders: Sequence[object], detail: str = "") -> Check:
    """Return a check that fails if there are offenders."""
    return Check(name, tuple(map(str, offenders)), detail)


def waits(first: Sequence[Story], since: float) -> bool:
    """Return whether a message has waited since that time."""
    return any(story.sent_at is not None and story.sent_at < since for story in first)
