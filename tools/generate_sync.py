"""Make the synchronous twins of the asynchronous modules; `--check` only compares, for CI.

The twins are committed. A rule that no longer matches anywhere is an error: it hides a rename.
"""

from __future__ import annotations

import argparse
import difflib
import re
import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).parent.parent / "src" / "spanmq"
MODULES = (
    "access_keys",
    "bulk",
    "categories",
    "client",
    "deliveries",
    "dead_letters",
    "grants",
    "health",
    "insides",
    "link",
    "listen",
    "maintenance",
    "pipeline_runs",
    "policies",
    "receivers",
    "schedules",
    "sending",
    "sessions",
    "shard_maps",
    "shards",
    "sqs_moves",
    "subscriptions",
    "tokens",
)

WORDS = {
    "AsyncAccessKeys": "AccessKeys",
    "access_keys_async": "access_keys",
    "AbstractAsyncContextManager": "AbstractContextManager",
    "AsyncAnnouncement": "Announcement",
    "AsyncCategories": "Categories",
    "AsyncClient": "Client",
    "AsyncConnection": "Connection",
    "AsyncConnectionLink": "ConnectionLink",
    "AsyncConnectionPool": "ConnectionPool",
    "AsyncCursor": "Cursor",
    "AsyncDeliveries": "Deliveries",
    "AsyncDeadLetters": "DeadLetters",
    "AsyncEvent": "Event",
    "AsyncGrants": "Grants",
    "AsyncHealth": "Health",
    "AsyncInsides": "Insides",
    "AsyncIterator": "Iterator",
    "AsyncJob": "Job",
    "AsyncLink": "Link",
    "AsyncListener": "Listener",
    "AsyncLock": "Lock",
    "AsyncMaintenance": "Maintenance",
    "AsyncPipelineRuns": "PipelineRuns",
    "AsyncPolicies": "Policies",
    "AsyncPoolLink": "PoolLink",
    "AsyncSchedules": "Schedules",
    "AsyncSending": "Sending",
    "AsyncSessions": "Sessions",
    "AsyncReceivers": "Receivers",
    "AsyncShardMaps": "ShardMaps",
    "AsyncShardedQueue": "ShardedQueue",
    "AsyncSqsMoves": "SqsMoves",
    "AsyncSubscriptions": "Subscriptions",
    "AsyncTokens": "Tokens",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "adapt_async": "adapt",
    "asynccontextmanager": "contextmanager",
    "bulk_async": "bulk",
    "categories_async": "categories",
    "asynchronous client": "synchronous client",
    "deliveries_async": "deliveries",
    "dead_letters_async": "dead_letters",
    "grants_async": "grants",
    "health_async": "health",
    "insides_async": "insides",
    "in_thread": "in_place",
    "link_async": "link",
    "listen_async": "listen",
    "maintenance_async": "maintenance",
    "client_async": "client",
    "shard_maps_async": "shard_maps",
    "pipeline_runs_async": "pipeline_runs",
    "policies_async": "policies",
    "schedules_async": "schedules",
    "sending_async": "sending",
    "sessions_async": "sessions",
    "receivers_async": "receivers",
    "sqs_moves_async": "sqs_moves",
    "subscriptions_async": "subscriptions",
    "tokens_async": "tokens",
}

RULES = {
    **{rf"(?<!\w){word}(?!\w)": twin for word, twin in WORDS.items()},
    r"\basync (?=def|with|for)": "",
    r"\bawait ": "",
    r"\bAwaitable\[(list\[Message\]|float \| None)\]": r"\1",
}


def generate(module: str, used: set[str]) -> str:
    """Return the text of a twin; add the rules that matched to `used`."""
    text = (SOURCES / f"{module}_async.py").read_text()
    for pattern, twin in RULES.items():
        text, count = re.subn(pattern, twin, text)
        if count:
            used.add(pattern)
    text = f"# Made of {module}_async.py by tools/generate_sync.py: change that one.\n\n{text}"
    # Names that have become equal or useless leave the imports; lines that have become short are joined.
    text = ruff("check", "--fix-only", "--quiet", "--select", "I,F401,F811", module=module, text=text)
    return ruff("format", "--quiet", module=module, text=text)


def ruff(*command: str, module: str, text: str) -> str:
    program = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(SOURCES / f"{module}.py"), "-"]
    return subprocess.run(program, input=text, capture_output=True, check=True, text=True).stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only; exit with 1 if a twin is stale")
    check = parser.parse_args().check
    used: set[str] = set()
    stale = False
    for module in MODULES:
        path = SOURCES / f"{module}.py"
        text = generate(module, used)
        committed = path.read_text() if path.exists() else ""
        if text == committed:
            continue
        stale = True
        if check:
            sys.stdout.writelines(
                difflib.unified_diff(
                    committed.splitlines(keepends=True),
                    text.splitlines(keepends=True),
                    f"{path.name} as committed",
                    f"{path.name} as generated",
                )
            )
        else:
            path.write_text(text)
    if unused := RULES.keys() - used:
        sys.stderr.write(f"rules that match nothing: {', '.join(sorted(unused))}\n")
        return 1
    return int(stale and check)


if __name__ == "__main__":
    sys.exit(main())
