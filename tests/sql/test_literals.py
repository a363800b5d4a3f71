"""How a session reads its own texts changes nothing in ours."""

import re

import psycopg
from tests.sql.queue import Connection

ESCAPED = re.compile(r"\bE'(?:[^'\\]|\\.|'')*'")
COMMENT = re.compile("--.*")


def test_no_text_holds_a_backslash_unless_it_says_so(connection: Connection) -> None:
    rows = connection.execute(
        "select proname, prosrc from pg_proc"
        " where pronamespace in ('pgmq'::regnamespace, 'spanmq'::regnamespace, 'spanmq_core'::regnamespace)"
    ).fetchall()
    assert {name for name, text in rows if "\\" in COMMENT.sub("", ESCAPED.sub("", text))} == set()


def test_queues_work_where_backslashes_escape(database: str) -> None:
    # A session of its own: it compiles what it calls.
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("set standard_conforming_strings = off")
        for name in ("orders", "my\\orders"):
            connection.execute("select pgmq.create(%s)", [name])
            connection.execute("select pgmq.bind_topic('a.*', %s)", [name])
            connection.execute("select pgmq.send(%s, '1'), pgmq.send_topic('a.b', '2')", [name])
            connection.execute("select pgmq.archive(%s, 1)", [name])
            found = connection.execute("select msg_id from pgmq.read(%s, 0, 9)", [name]).fetchall()
            assert found[0] == (2,)
