"""Dead letters and categories on the command line."""

from tests.cli.program import do, records, spanmq


def kill(orders: str, n: int) -> None:
    do(
        orders,
        f"select pgmq.send('orders', to_jsonb(i)) from generate_series(1, {n}) i",
        "select spanmq.reject('orders', lease_id, array_agg(msg_id), 'Read timeout', error_class => 'Slow')"
        f" from spanmq.receive('orders', {n}) group by lease_id",
    )


def test_dead_letters_are_listed_counted_put_back_and_deleted(orders: str) -> None:
    assert spanmq("dead-letter list", dsn=orders).out == "no dead letters\n"
    kill(orders, 4)
    since = ("--since", "2020-01-01T00:00:00+00:00", "--until", "2999-01-01")
    listed = records(
        "dead-letter list", "orders", "--error", "TIME", "--error-class", "Slow", *since, dsn=orders
    )
    assert [(each["message_id"], each["body"], each["category"]) for each in listed] == [
        (n, n, "TRANSIENT") for n in range(1, 5)
    ]
    assert records("dead-letter count", dsn=orders) == [
        {"queue": "orders", "category": "TRANSIENT", "count": 4}
    ]
    assert len(records("dead-letter redrive", "orders", "--dry-run", dsn=orders)) == 4
    planned = spanmq("dead-letter redrive", "orders", "--dry-run", dsn=orders).out
    assert planned.endswith("\n4 dead letters would be redriven\n")
    planned = spanmq("dead-letter redrive", "orders", "-n", 1, "--dry-run", dsn=orders).out
    assert planned.endswith("\n1 dead letter would be redriven, as --limit allows\n")
    redriven = records("dead-letter redrive", "orders", "-n", "1", "--rate", "5", "--delay", "0", dsn=orders)
    assert [each["message_id"] for each in redriven] == [1]
    repaired = records("dead-letter edit", "orders", "2", "--body", '{"a": 1}', "--delay", "0", dsn=orders)
    assert repaired == [{"queue": "orders", "message_id": 2}]
    assert [each["body"] for each in records("receive", "orders", "-n", "9", dsn=orders)] == [1, {"a": 1}]
    would = records("dead-letter discard", "orders", "--dry-run", dsn=orders)
    assert would == [{"queue": "orders", "purged": 2, "dry_run": True}]
    assert "this command needs --yes" in spanmq("dead-letter discard", "orders", dsn=orders).err
    assert spanmq("dead-letter discard", "orders", "--yes", dsn=orders).out == "deleted 2 dead letters\n"
    assert len(records("dead-letter list", "--redriven", dsn=orders)) == 2


def test_patch_that_is_for_too_many_or_no_json_puts_none_back(orders: str) -> None:
    kill(orders, 12)
    patch = ("--patch", '[{"op": "add", "path": "", "value": 7}]')
    redrive = ("dead-letter redrive", "orders", "--where", "$ > 1", *patch)
    refused = spanmq(*redrive, "-n", "9", dsn=orders)
    assert (refused.code, "more than 9 dead letters fit" in refused.err) == (1, True)
    assert spanmq("dead-letter redrive", "orders", "--patch", "[", dsn=orders).code == 2
    assert len(records("dead-letter list", "orders", dsn=orders)) == 12


def test_categories_are_set_listed_and_asked(orders: str) -> None:
    assert spanmq("category classify", "Connection refused", dsn=orders).out == "DEPENDENCY\n"
    rule = ("category", "set-rule", "sold", "BUSINESS", "--error", "sold out", "--queue", "orders")
    assert records(*rule, dsn=orders) == [{"name": "sold", "category": "BUSINESS"}]
    asked = ("category", "classify", "Sold out", "--error-class", "Error", "--queue", "orders")
    assert records(*asked, dsn=orders) == [{"category": "BUSINESS"}]
    assert records("category list-rules", "orders", dsn=orders)[0]["name"] == "sold"
    dropped = ("category", "drop-rule", "sold", "--queue", "orders")
    assert records(*dropped, dsn=orders) == [{"name": "sold", "dropped": True}]
    [changed] = records("category set-policy", "BUSINESS", "retries=true", "--queue", "orders", dsn=orders)
    assert changed["retries"] is True
    listed = {each["category"]: each for each in records("category list-policies", "orders", dsn=orders)}
    assert (listed["BUSINESS"]["retries"], listed["BUSINESS"]["queue"]) == (True, "orders")
    [followed] = records("category set-policy", "BUSINESS", "--queue", "orders", dsn=orders)
    assert followed["retries"] is False
    nothing = spanmq("category set-policy", "BUSINESS", dsn=orders)
    assert (nothing.code, "settings" in nothing.err) == (2, True)
