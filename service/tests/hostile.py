"""Texts that would be SQL, markup or lines of a log if anybody took them for it; and whether one did."""

from pathlib import Path
from typing import Final

from tests.cli.program import ask, do

# Short enough to be names of queues.
HOSTILE: Final = (
    "'); drop table canary; select ('",
    '"; drop table canary; --',
    "$$; drop table canary; --\\",
    "x' or 1=1; drop table canary; --",
    "%s {0}\r\nFORGED <script>alert(1)</script>",
)
MARKUP: Final = "<script>alert(1)"


def place_canary(dsn: str) -> None:
    """Put something into the database that must not change."""
    do(
        dsn,
        "create table canary as select 1 as n",
        "select pgmq.create('canary')",
        "select pgmq.send('canary', '1')",
    )


def check_canary(dsn: str, log: Path) -> None:
    """See that it is as it was, and that the log has no line but the service's, and no fault."""
    assert ask(dsn, "select n from canary") == 1
    assert ask(dsn, "select count(*) from pgmq.q_canary") == 1
    lines = log.read_text("utf-8").splitlines()
    assert [line for line in lines if line.startswith(("FORGED", "Traceback"))] == []
