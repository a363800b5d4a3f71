"""The summary of a run."""

import re
import resource
import sys
from dataclasses import dataclass
from pathlib import Path

from spanmq_lab.demo.audit import DemoCheck


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoReport:
    """The result of a run; rates are messages a second from the first send on, times are seconds.

    `peak_memory_bytes` is of this process, which is the whole client: senders and consumers are threads.
    """

    queue: str
    rows: int
    consumers: int
    seconds: float
    send_seconds: float
    settle_seconds: float
    send_rate: float
    settle_rate: float
    redelivered: int
    wal_bytes: int
    log_bytes: int
    archive_bytes: int
    state_bytes: int
    peak_memory_bytes: int
    checksum: str
    checks: tuple[DemoCheck, ...]

    @property
    def passed(self) -> bool:
        """Return whether all checks passed."""
        return all(check.passed for check in self.checks)

    def lines(self) -> list[tuple[str, str]]:
        """Return names and values for a table."""
        wal_bytes_per_row = self.wal_bytes / max(self.rows, 1)
        return [
            ("flights", f"{self.rows:,}, by {self.consumers} consumers"),
            ("sent", f"{self.send_seconds:.1f} s, {self.send_rate:,.0f} a second"),
            ("settled", f"{self.settle_seconds:.1f} s, {self.settle_rate:,.0f} a second"),
            ("delivered again", f"{self.redelivered:,}"),
            ("all in all", f"{self.seconds:.1f} s, with the checks"),
            ("WAL", f"{megabytes(self.wal_bytes)}, {wal_bytes_per_row:,.0f} bytes a flight"),
            ("archive", megabytes(self.archive_bytes)),
            ("log, at the end", megabytes(self.log_bytes)),
            ("state, at the end", megabytes(self.state_bytes)),
            ("peak memory", megabytes(self.peak_memory_bytes)),
            ("checksum", self.checksum),
            *((check.name, "yes" if check.passed else f"NO: {check.detail}") for check in self.checks),
        ]


def peak_memory_bytes() -> int:
    """Return the peak memory of this process in bytes.

    On Linux from /proc: getrusage also counts the memory before exec, that of the parent process.
    """
    status = Path("/proc/self/status")
    if status.exists():
        peak_line = re.search(r"^VmHWM:\s+(\d+) kB", status.read_text(), re.MULTILINE)
        if peak_line:
            return int(peak_line[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def megabytes(count: int) -> str:
    """Write a number of bytes for a person."""
    return f"{count / 1e6:,.1f} MB"
