"""How queues and the server are, on a terminal, in a pipe, and as JSON."""

from tests.cli.program import do, records, spanmq


def test_health_is_told(orders: str) -> None:
    do(orders, "select pgmq.send_batch('orders', array['1', '2']::jsonb[]), spanmq.receive('orders', 1, 600)")
    [told] = records("queue health", dsn=orders)
    expected = {"queue": "orders", "backlog": 2, "visible": 1, "in_flight": 1, "is_paused": False}
    assert {name: told[name] for name in expected} == expected
    header, row = spanmq("queue health", dsn=orders).out.splitlines()
    assert header.split()[:3] == ["QUEUE", "BACKLOG", "VISIBLE"]
    assert row.split()[:3] == ["orders", "2", "1"]


def test_no_queues_is_told(database: str) -> None:
    for words in (("queue", "health"), ("queue", "list"), ("top", "--times", "1")):
        assert spanmq(*words, dsn=database).out == "no queues\n"
    assert spanmq("queue list", "--json", dsn=database).out == ""  # said to a person only


def test_statistics_are_told(orders: str) -> None:
    assert spanmq("queue statistics", "orders", dsn=orders).out.startswith("no samples")
    do(
        orders,
        "select pgmq.send('orders', '1')",
        "select * from spanmq.maintain()",
        "update spanmq_core.sample set sampled_at = sampled_at - interval '61 s', drawn = 0, backlog = 0",
        "select * from spanmq.maintain()",
    )
    [told] = records("queue statistics", "orders", "--seconds", 60, dsn=orders)
    assert (told["sent"], told["backlog"], told["settled"]) == (1, 1, 0)


def test_doctor_says_what_to_do_and_ends_with_1_when_there_is_a_problem(orders: str) -> None:
    done = spanmq("doctor", "--json", dsn=orders)
    levels = {each["check"]: each["level"] for each in done.records}
    assert levels["version"] == levels["clock"] == "ok"
    assert done.code == int("problem" in levels.values())
    done = spanmq("doctor", "--connections", 1_000_000, dsn=orders)
    assert done.code == 1
    assert "ok      version: PostgreSQL" in done.out
    assert "        → make the pools smaller" in done.out.split("problem connections: ")[1]


def test_top_prints_lines_without_a_terminal(orders: str) -> None:
    assert len(records("top", "--every", "0.1", "--times", 3, dsn=orders)) == 3
