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
    for verb in ("list", "count"):
        assert spanmq("dead-letter", verb, dsn=orders).out == "no dead letters\n"
    kill(orders, 4)
    assert records("dead-letter count", dsn=orders) == [
        {"queue": "orders", "category": "TRANSIENT", "count": 4}
    ]
    planned = spanmq("dead-letter redrive", "orders", "--dry-run", dsn=orders).out
    assert planned.endswith("\n4 dead letters would be redriven\n")
    planned = spanmq("dead-letter redrive", "orders", "-n", 1, "--dry-run", dsn=orders).out
    assert planned.endswith("\n1 dead letter would be redriven, as --limit allows\n")
    repaired = records("dead-letter edit", "orders", "2", "--body", '{"a": 1}', "--delay", "0", dsn=orders)
    assert repaired == [{"queue": "orders", "message_id": 2}]
    would = records("dead-letter discard", "orders", "--dry-run", dsn=orders)
    assert would == [{"queue": "orders", "purged": 3, "dry_run": True}]
    assert "this command needs --yes" in spanmq("dead-letter discard", "orders", dsn=orders).err
    assert spanmq("dead-letter discard", "orders", "--yes", dsn=orders).out == "deleted 3 dead letters\n"
    assert len(records("dead-letter list", "--redriven", dsn=orders)) == 1


def test_categories_are_set_listed_and_asked(orders: str) -> None:
    assert spanmq("category classify", "Connection refused", dsn=orders).out == "DEPENDENCY\n"
    rule = ("category", "set-rule", "sold", "BUSINESS", "--error-class", "Sold", "--queue", "orders")
    assert records(*rule, dsn=orders) == [{"name": "sold", "category": "BUSINESS"}]
    asked = ("category", "classify", "out", "--error-class", "Sold", "--queue", "orders")
    assert records(*asked, dsn=orders) == [{"category": "BUSINESS"}]
    [changed] = records("category set-policy", "BUSINESS", "retries=true", "--queue", "orders", dsn=orders)
    assert changed["retries"] is True
    listed = {
        record["category"]: record for record in records("category list-policies", "orders", dsn=orders)
    }
    assert (listed["BUSINESS"]["retries"], listed["BUSINESS"]["queue"]) == (True, "orders")
    [followed] = records("category set-policy", "BUSINESS", "--queue", "orders", dsn=orders)
    assert followed["retries"] is False
    nothing = spanmq("category set-policy", "BUSINESS", dsn=orders)
    assert (nothing.code, "settings" in nothing.err) == (2, True)
