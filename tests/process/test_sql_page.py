"""docs/start/sql.md: its blocks run one after the other in psql, and print what the page shows."""

import re
import subprocess

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from tests.cli.program import PROGRAM, environment
from tests.documented import DOCS
from tests.patience import WAIT_SECONDS

BLOCK = re.compile(r"```(console|sql|text)\n(.*?)```", re.DOTALL)
MARK = "--- end of a block"
ROLE = "parcels_packer"
# A server of tests has no pg_cron. A reader with pg_cron has jobs that run at any time from then on: the page shows the
# same if all of them run at once, and if none does.
CRON = """
create schema cron;
create function cron.schedule(job_name text, schedule text, command text) returns bigint language plpgsql as $$
begin
    if {runs} and schedule = '5 seconds' then
        execute command;
    end if;
    return 1;
end $$;
"""


def psql(dsn: str, script: str) -> str:
    """Return what psql prints for a script; it continues after errors, as a session of a person does."""
    done = subprocess.run(
        [*PROGRAM, "psql", "--quiet", "--no-psqlrc", "--pset", "footer=off"],
        input=script,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(dsn),
        timeout=WAIT_SECONDS,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize("runs", [False, True], ids=["jobs wait", "jobs run"])
def test_page_can_be_followed_in_sql(empty_database: str, *, runs: bool) -> None:
    # A server's databases have its roles in common.
    role = f"{ROLE}_{conninfo_to_dict(empty_database)['dbname']}"
    blocks = BLOCK.findall((DOCS / "start/sql.md").read_text("utf-8").replace(ROLE, role))
    [installation, *blocks] = blocks
    assert "spanmq schema sql > spanmq.sql" in installation[1]
    statements = subprocess.run(
        [*PROGRAM, "schema", "sql"], capture_output=True, text=True, env=environment(None), check=True
    )
    assert "ERROR" not in psql(empty_database, statements.stdout)
    scripts = [text for language, text in blocks if language == "sql"]
    try:
        printed = psql(
            empty_database,
            CRON.format(runs=runs) + "".join(f"{text}\n\\echo {MARK}\n" for text in scripts),
        )
    finally:
        with psycopg.connect(empty_database, autocommit=True) as connection:
            if connection.execute("select from pg_roles where rolname = %s", [role]).fetchone():
                connection.execute(f"drop owned by {role}; drop role {role}".encode())
    results = printed.split(f"{MARK}\n")
    assert len(results) == len(scripts) + 1 > 8
    # A block of text is the result of the block of SQL before it; a block without one prints no error.
    number = -1
    for (language, text), after in zip(blocks, [*blocks[1:], ("", "")], strict=True):
        if language == "sql":
            number += 1
            if after[0] != "text":
                assert "ERROR" not in results[number], results[number]
        else:
            pattern = ".*".join(map(re.escape, plain(text).split("…")))
            assert re.fullmatch(pattern, plain(results[number]), re.DOTALL), results[number]


def plain(text: str) -> str:
    """Return lines without the spaces at their ends, which an editor removes, and without empty ones."""
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip())
