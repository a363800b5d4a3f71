"""Write the functions that reach a log by its lane, a statement a lane; `--check` only compares, for CI.

A view of fixed name is all that a statement of PL/pgSQL can name and keep its plan: functions/lane.sql.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

FUNCTIONS = Path(__file__).parent.parent / "src" / "spanmq" / "sql" / "functions"
LANES = 32

HEAD = """\
-- Made by tools/generate_lane.py. What lanes are: lane.sql. The number of a lane decides by halves: five looks for 32 of them.
"""  # noqa: E501

COUNT = f"""
create or replace function spanmq_core.count_lanes() returns int
language sql immutable as $$ select {LANES} $$;
"""

# Each function, and the statement that it runs for the lane whose number stands in the braces.
APPEND = """
-- Returns the id: a call that gives something can stand in an assignment, which costs half of a `perform`.
create or replace function spanmq_core.append_by_lane(
    lane int, id bigint, sent_at timestamptz, message jsonb, headers jsonb
) returns bigint
language plpgsql as $$
begin
{}    return id;
end $$;
"""
APPEND_STATEMENT = (
    "insert into spanmq_core.lane_{} (msg_id, enqueued_at, message, headers)"
    " values (id, sent_at, message, headers);"
)

APPEND_RUN = """
-- Functions that return sets are streamed in a select list; in a from list they would be copied first.
create or replace function spanmq_core.append_run_by_lane(
    lane int, first_id bigint, last_id bigint, sent_at timestamptz, messages jsonb[]
) returns void
language plpgsql as $$
begin
{}end $$;
"""
APPEND_RUN_STATEMENT = (
    "insert into spanmq_core.lane_{} (msg_id, enqueued_at, message)"
    " select generate_series(first_id, last_id), sent_at, unnest(messages);"
)

FETCH = """
-- What the log has of a message; null if there is no row.
create or replace function spanmq_core.fetch_by_lane(lane int, id bigint) returns spanmq_core.logged
language plpgsql as $$
declare
    this spanmq_core.logged;
begin
{}    return this;
end $$;
"""
FETCH_STATEMENT = (
    "select l.enqueued_at, l.message, l.headers into this from spanmq_core.lane_{} l where l.msg_id = id;"
)

FILES = {
    "lane_write.sql": ((APPEND, APPEND_STATEMENT), (APPEND_RUN, APPEND_RUN_STATEMENT)),
    "lane_read.sql": ((FETCH, FETCH_STATEMENT),),
}


def generate(file: str) -> str:
    """Give the text of one file of functions."""
    parts = [HEAD]
    if file == "lane_write.sql":
        parts.append(COUNT)
    for function, statement in FILES[file]:
        parts.append(function.format("".join(f"    {line}\n" for line in choose(statement, 1, LANES))))
    return "".join(parts)


def choose(statement: str, first: int, last: int) -> Iterator[str]:
    """Give the lines that run the statement of the lane, one of first to last."""
    if first == last:
        yield statement.format(first)
        return
    middle = (first + last) // 2
    yield f"if lane <= {middle} then"
    yield from (f"    {line}" for line in choose(statement, first, middle))
    yield "else"
    yield from (f"    {line}" for line in choose(statement, middle + 1, last))
    yield "end if;"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only; exit with 1 if a file is stale")
    check = parser.parse_args().check
    stale = [file for file in FILES if _read(FUNCTIONS / file) != generate(file)]
    for file in stale:
        if check:
            sys.stderr.write(f"{file} is stale: make fix\n")
        else:
            (FUNCTIONS / file).write_text(generate(file))
    return int(bool(stale) and check)


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
