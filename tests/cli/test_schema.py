"""The schema: install, upgrade, verify, sql, uninstall, adopt, version."""

from tests.cli.program import ask, do, records, spanmq

from spanmq import __version__, schema


def test_schema_from_nothing_to_nothing(empty_database: str) -> None:
    missing = spanmq("schema verify", "--json", dsn=empty_database)
    assert (missing.code, missing.records[0]["problem"]) == (1, "missing")
    [installed] = records("schema install", dsn=empty_database)
    assert (installed["version"], installed["functions_applied"]) == (__version__, True)
    again = spanmq("schema install", dsn=empty_database)
    assert again.out == f"spanmq {__version__} is already installed\n"
    assert (
        spanmq("schema verify", dsn=empty_database).out
        == f"everything is as spanmq {__version__} installs it\n"
    )
    do(empty_database, "drop function pgmq.pop")
    [difference] = spanmq("schema verify", "--json", dsn=empty_database).records
    assert difference["problem"] == "missing"
    assert "pop" in difference["name"]
    assert records("schema upgrade", dsn=empty_database)[0]["functions_applied"] is True
    assert records("schema verify", dsn=empty_database) == []
    do(empty_database, "select pgmq.create('orders')", "select pgmq.send('orders', '1'::jsonb)")
    refused = spanmq("schema uninstall", "--yes", dsn=empty_database)
    assert refused.code == 1
    assert refused.err.startswith("spanmq: data loss: ")
    assert "hint: spanmq schema uninstall --force" in refused.err
    assert spanmq("schema uninstall", "--yes", "--force", dsn=empty_database).out == "uninstalled\n"
    assert ask(empty_database, "select to_regnamespace('pgmq')") is None


def test_sql_is_the_script_that_installs(empty_database: str) -> None:
    done = spanmq("schema sql", dsn=None)
    assert (done.code, done.out) == (0, schema.sql())
    assert spanmq("schema sql", "--no-transaction", dsn=None).out == schema.sql(transaction=False)
    assert spanmq("schema sql", "--from", "0.0.9", dsn=None).out == schema.sql("0.0.9")


def test_pgmq_is_adopted_after_a_dry_run(upstream_database: str) -> None:
    do(
        upstream_database,
        "select pgmq.create('orders')",
        "select pgmq.send_batch('orders', array['1', '2', '3']::jsonb[])",
        "select pgmq.archive('orders', 1)",
    )
    refused = spanmq("schema install", dsn=upstream_database)
    assert refused.code == 1
    assert refused.err.startswith("spanmq: upstream pgmq: ")
    assert "hint: " in refused.err
    assert "spanmq schema adopt" in refused.err
    planned = spanmq("schema adopt", "--dry-run", dsn=upstream_database)
    assert "would take over 1 queue with 2 messages" in planned.out
    assert records("version", dsn=upstream_database)[0]["flavour"] == "upstream"
    [report] = records("schema adopt", dsn=upstream_database)
    assert report["is_dry_run"] is False
    [queue] = report["queues"]
    assert (queue["queue"], queue["messages"], queue["archived"]) == ("orders", 2, 1)
    assert [each["message_id"] for each in records("receive", "orders", "-n", 9, dsn=upstream_database)] == [
        2,
        3,
    ]


def test_adopt_names_what_stands_in_its_way(upstream_database: str) -> None:
    do(
        upstream_database,
        "select pgmq.create('orders')",
        "create function tell() returns trigger language plpgsql as 'begin return null; end'",
        "create trigger tell after insert on pgmq.q_orders for each row execute function tell()",
    )
    planned = spanmq("schema adopt", "--dry-run", dsn=upstream_database)
    assert planned.code == 1
    assert "in the way: " in planned.out
    refused = spanmq("schema adopt", dsn=upstream_database)
    assert refused.code == 1
    assert refused.err.startswith("spanmq: adoption refused: ")
    assert "detail: " in refused.err


def test_version_names_the_schema_of_a_database(database: str, empty_database: str) -> None:
    assert spanmq("--version", dsn=None).out == f"spanmq {__version__}\n"
    # Without a database none is looked at, nor a server started.
    assert spanmq("version", dsn=None).out == f"spanmq {__version__}\n"
    assert spanmq("version", dsn=database).out == f"spanmq {__version__}, schema {__version__}\n"
    assert records("version", dsn=empty_database) == [
        {"version": __version__, "flavour": "none", "schema": None}
    ]
