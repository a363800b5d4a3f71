"""Queues as things, announcements, housekeeping."""

import json
from datetime import datetime
from pathlib import Path

from tests.cli.program import ask, do, records, spanmq

from spanmq.cli.app import SYNONYMS


def test_queues_are_created_listed_measured_and_dropped(database: str) -> None:
    assert records("queue list", dsn=database) == []
    assert records("queue create", "Orders", dsn=database) == [{"queue": "Orders", "created": True}]
    assert records("queue create", "orders", dsn=database) == [{"queue": "orders", "created": False}]
    assert spanmq("queue create", "orders", dsn=database).out == "queue orders exists already\n"
    records("queue create", "events", "--unlogged", dsn=database)
    intervals = ("--partition-interval", 1000, "--retention-interval", "7 days")
    records("queue create", "parts", *intervals, dsn=database)
    listed = {each["name"]: each for each in records("queue list", dsn=database)}
    assert list(listed) == ["Orders", "events", "parts"]
    assert (listed["events"]["is_unlogged"], listed["parts"]["is_partitioned"]) == (True, True)
    do(database, "select pgmq.send_batch('orders', array['1', '2']::jsonb[])")
    [counted] = records("queue metrics", "orders", dsn=database)
    assert (counted["length"], counted["visible_length"], counted["total_messages"]) == (2, 2, 2)
    assert [each["queue"] for each in records("queue metrics", dsn=database)] == ["Orders", "events", "parts"]
    [stored] = records("queue storage", "orders", dsn=database)
    assert stored.pop("wal_bytes") > 0
    assert all(value > 0 for value in stored.values())
    assert records("queue purge", "orders", "--yes", dsn=database) == [{"queue": "orders", "purged": 2}]
    assert records("queue drop", "orders", "--yes", dsn=database) == [{"queue": "orders", "dropped": True}]
    assert records("queue drop", "orders", "--yes", dsn=database) == [{"queue": "orders", "dropped": False}]


def test_schema_of_bodies_is_set_from_a_file_and_printed(orders: str, tmp_path: Path) -> None:
    file = tmp_path / "order.json"
    file.write_text('{"type": "object", "title": "\u00fc"}', "utf-8")
    [done] = records("queue set-schema", "orders", str(file), "--checked", dsn=orders)
    assert done == {"queue": "orders", "schema": {"type": "object", "title": "\u00fc"}, "is_checked": True}
    shown = spanmq("queue schema", "orders", dsn=orders)
    assert json.loads(shown.out) == done["schema"]
    refused = spanmq("send", "orders", "17", dsn=orders)
    assert (refused.code, "$ must be object, not number" in refused.err) == (1, True)
    assert spanmq("queue set-schema", "orders", "-", dsn=orders, stdin="null").code == 0
    assert records("queue schema", "orders", dsn=orders) == [{"schema": None, "is_checked": False}]
    for given in ("{", "NaN"):
        assert spanmq("queue set-schema", "orders", "-", dsn=orders, stdin=given).code == 2
    missing = spanmq("queue set-schema", "orders", str(tmp_path / "none.json"), dsn=orders)
    assert (missing.code, "none.json" in missing.err) == (2, True)
    bad = spanmq("queue set-schema", "orders", "-", dsn=orders, stdin='{"items": 1}')
    assert (bad.code, "not valid at $.items" in bad.err) == (1, True)


def test_columns_in_a_pipe_are_whole_and_aligned(orders: str) -> None:
    body = '"' + "x" * 100 + ' [red]"'
    do(orders, f"select pgmq.send('orders', '{body}'::jsonb)", "select pgmq.send('orders', 'null'::jsonb)")
    header, first, second = spanmq(
        "message peek", "orders", dsn=orders, more={"COLUMNS": "40"}
    ).out.splitlines()
    assert header.split("  ")[0] == "MESSAGE ID"
    assert first.endswith(f"  {body}")
    assert second.endswith("  null")
    assert header.index("BODY") == first.index(body) == second.index("null")


def test_rows_too_wide_for_a_pipe_are_blocks(orders: str) -> None:
    body = '"' + "x" * 500 + '"'
    do(orders, f"select pgmq.send('orders', '{body}'::jsonb)", "select pgmq.send('orders', '1'::jsonb)")
    first, second = spanmq("message peek", "orders", dsn=orders).out.split("\n\n")
    assert first.splitlines()[0].split() == ["MESSAGE", "ID", "1"]
    assert first.splitlines()[-1].endswith(f"  {body}")
    assert second.splitlines()[-1].split() == ["BODY", "1"]


def test_list_of_queues_has_counts_and_says_where_no_worker_is(orders: str) -> None:
    [empty] = records("queue list", dsn=orders)
    assert (empty["backlog"], empty["dead_letters"], empty["lacks_worker"]) == (0, 0, False)
    do(orders, "select pgmq.send_batch('orders', array['1', '2']::jsonb[])")
    [waiting] = records("queue list", dsn=orders)
    assert (waiting["backlog"], waiting["visible"], waiting["lacks_worker"]) == (2, 2, True)
    for command in ("queue list", "queue health", "top --times 1"):
        assert "no worker" in spanmq(command, dsn=orders).out, command
    do(orders, "select spanmq.report_worker(array['orders'], 'a', 1, 1)")
    assert [each["lacks_worker"] for each in records("queue list", dsn=orders)] == [False]
    assert "no worker" not in spanmq("list", dsn=orders).out


def test_failing_messages_are_shown_retried_and_rejected(orders: str) -> None:
    do(
        orders,
        "select pgmq.send_batch('orders', array['1', '2', '3']::jsonb[])",
        "select spanmq.nack('orders', max(lease_id), array_agg(msg_id), 'no customer 17', retry_in => 600)"
        " from spanmq.receive('orders', 10)",
    )
    [cause] = records("queue failing", "orders", dsn=orders)
    assert (cause["error"], cause["count"], cause["is_exact"]) == ("no customer <number>", 3, True)
    assert records("failing", dsn=orders) == [cause]
    chosen = ("orders", "--error", cause["error"])
    listed = records("queue failing-messages", *chosen, dsn=orders)
    assert [each["message_id"] for each in listed] == [1, 2, 3]
    for command in ("queue failing-messages", "message peek"):
        newest = records(command, "orders", "--newest-first", "-n", 2, "--after", 3, dsn=orders)
        assert [each["message_id"] for each in newest] == [2, 1], command
    retried = records("queue retry-failing", *chosen, "--id", 1, dsn=orders)
    assert retried == [{"queue": "orders", "retried": 1, "waits_for": "no_worker"}]
    assert "this command needs --yes" in spanmq("queue reject-failing", *chosen, dsn=orders).err
    rejected = records("queue reject-failing", *chosen, "--id", 2, "--id", 3, "--yes", dsn=orders)
    assert rejected == [{"queue": "orders", "rejected": 2}]
    assert [each["message_id"] for each in records("dlq list", dsn=orders)] == [2, 3]


def test_what_people_guess_is_understood(orders: str) -> None:
    assert spanmq("create", "more", dsn=orders).out == "created queue more\n"
    assert [each["name"] for each in records("ls", dsn=orders)] == ["orders", "more"]
    assert [each["queue"] for each in records("status", dsn=orders)] == ["orders", "more"]
    assert spanmq("help queue", dsn=orders).out == spanmq("queue --help", dsn=orders).out
    assert spanmq("retry", "orders", dsn=orders).out == "no dead letters\n"
    for synonym, words in SYNONYMS.items():
        assert spanmq("help", synonym, dsn=orders).out == spanmq(*words, "--help", dsn=orders).out


def test_what_destroys_is_refused_where_nobody_can_be_asked(orders: str) -> None:
    do(orders, "select pgmq.send('orders', '1'::jsonb)")
    for words in (
        ("queue", "drop", "orders"),
        ("queue", "purge", "orders"),
        ("schema", "uninstall", "--force"),
    ):
        done = spanmq(*words, stdin="y\n", dsn=orders)
        assert (done.code, done.out, "this command needs --yes" in done.err) == (2, "", True), words
        assert "Invalid value" not in done.err
    assert ask(orders, "select count(*) from pgmq.q_orders") == 1


def test_announcements_are_switched_on_and_off(orders: str) -> None:
    records("notification enable", "orders", "--throttle", "1.5", dsn=orders)
    [throttle] = records("notification list", dsn=orders)
    assert (throttle["queue"], throttle["throttle_ms"]) == ("orders", 1500)
    records("notification update", "orders", "--throttle", "0", dsn=orders)
    assert records("notification list", dsn=orders)[0]["throttle_ms"] == 0
    records("notification disable", "orders", dsn=orders)
    assert records("notification list", dsn=orders) == []


def test_maintain_goes_on_until_nothing_is_left_to_do(orders: str) -> None:
    do(orders, "select pgmq.create('events')", "select pgmq.create('invoices')")
    do(orders, *(f"select pgmq.send('{queue}', '1')" for queue in ("orders", "events", "invoices")))
    steps = records("maintain", "--budget", 1, dsn=orders)
    assert {step["queue"] for step in steps} == {"orders", "events", "invoices"}
    assert {step["action"] for step in steps} == {"made segment"}
    assert records("maintain", dsn=orders) == []


def test_roles_are_granted_what_they_may_do(database: str) -> None:
    records("queue create", "orders", dsn=database)
    do(database, "drop role if exists spanmq_test_clerk", "create role spanmq_test_clerk")
    try:
        given = {"role": "spanmq_test_clerk", "queue": "orders", "verb": "send"}
        assert records("grant create", "spanmq_test_clerk", "orders", "send", dsn=database) == [given]
        assert records("grant list", dsn=database) == [given]
        taken = records("grant revoke", "spanmq_test_clerk", "orders", "send", dsn=database)
        assert taken == [{**given, "is_gone": True}]
        assert spanmq("grant list", "orders", dsn=database).out == "no grants\n"
        refused = spanmq("grant create", "spanmq_test_clerk", "orders", "read", dsn=database)
        assert (refused.code, "verb 'read' does not exist" in refused.err) == (1, True)
    finally:
        do(database, "drop owned by spanmq_test_clerk", "drop role spanmq_test_clerk")


def test_replay(database: str) -> None:
    do(
        database,
        "select pgmq.create('orders'), pgmq.create('fix')",
        "select spanmq.set_policy('orders', '{\"keep\": \"7 days\"}')",
        "select pgmq.send_batch('orders', array['{\"n\": 1}', '{\"n\": 2}']::jsonb[])",
        "select pgmq.pop('orders')",
    )
    words = ("subscription replay", "orders", "fix", "--where", "$.n < 3", "--id", "1")
    expected = {"queue": "orders", "into": "fix", "count": 1, "last_message_id": 1}
    assert records(*words, "--dry-run", dsn=database) == [expected | {"dry_run": True}]
    assert records(*words, dsn=database) == [expected | {"dry_run": False}]
    [sent] = records("message peek", "fix", dsn=database)
    was = sent["headers"]["x-spanmq-replay-of"]
    assert (was["queue"], was["msg_id"]) == ("orders", 1)
    assert datetime.fromisoformat(was["enqueued_at"]) < datetime.fromisoformat(sent["enqueued_at"])
    [extent] = records("subscription replay-extent", "orders", dsn=database)
    assert (extent["first_message_id"], extent["last_message_id"]) == (1, 2)
    since = extent["since"]
    assert records("subscription create", "audit", "orders", "--since", since, dsn=database)
    assert len(records("message peek", "audit", dsn=database)) == 2
    assert records("subscription replay-extent", "audit", dsn=database) == []
