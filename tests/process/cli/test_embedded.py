"""Without a database: the embedded server, its note, and the schema made ready in it."""

import os
from pathlib import Path

from tests.cli.program import run
from tests.cli.program import spanmq as command
from tests.process.embedded.processes import parent_folder

import spanmq


def test_embedded_server_serves_who_names_no_database() -> None:
    with parent_folder() as parent:
        folder = Path(parent, "postgres")
        more = {"SPANMQ_EMBEDDED_FOLDER": str(folder)}
        note = f"spanmq: using the embedded server in {folder} (--dsn or SPANMQ_DSN names another)\n"
        made = run("queue create", "orders", dsn=None, more=more)
        assert (made.code, made.out) == (0, "created queue orders\n")
        assert made.err == f"{note}spanmq: installed the schema {spanmq.__version__} in it\n"
        sent = command("send", "orders", "--json", stdin="1\n2\n", dsn=None, more=more)
        assert ([each["message_id"] for each in sent.records], sent.err) == ([1, 2], "")
        kept = run("demo", "--rows", 10, "--keep", "--json", dsn=None, more=more)
        assert (kept.code, kept.records[0]["rows"]) == (0, 10)
        archived = run("message peek-archive", "spanmq_demo_flights", "-n", 99, "--json", dsn=None, more=more)
        assert len(archived.records) == 10
        # What nobody may do unasked, it does not do here either.
        assert run("schema uninstall", dsn=None, more=more).code == 2
        nothing = run("queue metrics", dsn=None, more={"SPANMQ_EMBEDDED_FOLDER": os.devnull})
        assert nothing.code == 1
        assert nothing.err.startswith("spanmq: embedded ")
