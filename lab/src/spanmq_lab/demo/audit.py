"""The comparison of input and output: counts and checksums, from the file and from the archive."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from spanmq.client import Client
from spanmq.model import GROUP_HEADER
from spanmq_lab.demo.display import Tick
from spanmq_lab.demo.flights import group_of, read_flights

STEP: Final = 1_000
CHECKSUM_BITS: Final = 128

_canonical: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


class Tally:
    """The number of messages, and the sum of their hashes.

    A sum, so that order does not matter. A sum and not an exclusive or: of that, two copies would be none.
    """

    __slots__ = ("_sum", "count")

    def __init__(self) -> None:
        self.count = 0
        self._sum = 0

    def add(self, body: object, headers: dict[str, Any] | None) -> None:
        """Count one message: its body and its headers in canonical JSON."""
        text = _canonical.encode([body, headers])
        digest = hashlib.blake2b(text.encode(), digest_size=CHECKSUM_BITS // 8).digest()
        self.count += 1
        self._sum += int.from_bytes(digest)

    @property
    def checksum(self) -> str:
        """Return the sum, modulo 2^128, in hexadecimal."""
        return f"{self._sum % (1 << CHECKSUM_BITS):032x}"


@dataclass(frozen=True, slots=True)
class DemoCheck:
    """One thing that must be so, and whether it is."""

    name: str
    passed: bool
    detail: str


def tally_file(path: Path, rows: int, tick: Tick) -> Tally:
    """Read the file once more, by itself."""
    tally = Tally()
    tick("file read", 0)
    for flight in read_flights(path, rows):
        group = group_of(flight)
        tally.add(flight, None if group is None else {GROUP_HEADER: group})
        if tally.count % STEP == 0:
            tick("file read", tally.count)
    tick("file read", tally.count)
    return tally


def tally_archive(client: Client, queue: str, tick: Tick) -> Tally:
    """Walk through the archive of a queue."""
    tally = Tally()
    tick("archive read", 0)
    after = 0
    while messages := client.inspect.archive(queue, STEP, after=after):
        for message in messages:
            tally.add(message.body, message.headers)
        after = messages[-1].message_id
        tick("archive read", tally.count)
    return tally


def compare(file: Tally, archive: Tally, *, left: int) -> tuple[DemoCheck, ...]:
    """Return the checks: nothing is lost, duplicated or changed, and nothing is left in the queue."""
    difference = archive.count - file.count
    counted = f"{file.count:,} in the file, {archive.count:,} in the archive"
    return (
        DemoCheck("nothing lost", difference >= 0, counted),
        DemoCheck("nothing duplicated", difference <= 0, counted),
        # If other messages than those sent are found, the checksum differs even if the count is equal.
        DemoCheck(
            "nothing changed", file.checksum == archive.checksum, f"{file.checksum} {archive.checksum}"
        ),
        DemoCheck("nothing left in the queue", left == 0, f"{left:,}"),
    )
