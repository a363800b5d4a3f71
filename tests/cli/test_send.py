"""Sending from arguments and from stdin."""

import json

import pytest
from tests.cli.program import ask, records, spanmq


def bodies(dsn: str) -> list[object]:
    return [message["body"] for message in records("message peek", "orders", "-n", 1000, dsn=dsn)]


def test_body_headers_group_and_delay_go_into_the_message(orders: str) -> None:
    more = ("--headers", '{"x": 2}', "--group", "g", "--delay", 600)
    assert records("send", "orders", '{"a": 1}', *more, dsn=orders) == [{"queue": "orders", "message_id": 1}]
    records("send", "orders", "1", "--delay", "2099-01-31T12:00:00Z", dsn=orders)
    message, _ = records("message peek", "orders", dsn=orders)
    assert (message["body"], message["group"]) == ({"a": 1}, "g")
    assert message["headers"] == {"x": 2, "x-pgmq-group": "g"}
    first = "vt > now() + interval '9 min' and vt < now() + interval '11 min'"
    second = "vt = '2099-01-31 12:00:00 UTC'"
    assert ask(
        orders, f"select bool_and(case msg_id when 1 then {first} else {second} end) from pgmq.q_orders"
    )


def test_numbers_keep_every_digit(orders: str) -> None:
    number = "0.1000000000000000000000000000000000000000000000000001"
    records("send", "orders", number, dsn=orders)
    spanmq("send", "orders", stdin=f'{{"n": {number}}}\n{number}\n', dsn=orders)
    shown = spanmq("message peek", "orders", "--json", dsn=orders).out
    assert shown.count(f'"body":{number},') == 2
    assert f'"body":{{"n": {number}}},' in shown


def test_text_is_sent_as_text(orders: str) -> None:
    records("send", "orders", "hello", "--text", dsn=orders)
    spanmq("send", "orders", "--text", stdin="[1]\n\nü\n", dsn=orders)
    assert bodies(orders) == ["hello", "[1]", "", "ü"]


def test_each_line_of_stdin_is_a_message(orders: str) -> None:
    for lines, said in (("", "0 messages"), ("1\n", "1 message")):
        done = spanmq("send", "orders", dsn=orders, stdin=lines)
        assert (done.code, done.out) == (0, f"sent {said} to orders\n")
    lines = "".join(f'{{"n": {n}}}\n' for n in range(2500))
    done = spanmq("send", "orders", "-", "--group", "g", dsn=orders, stdin=f"{lines}\n  \n7")
    assert (done.code, done.out, done.err) == (0, "sent 2,501 messages to orders\n", "")
    # Three transactions for batches of a thousand.
    grouped = "from pgmq.q_orders where headers->>'x-pgmq-group' = 'g'"
    assert ask(orders, f"select array[count(*), count(distinct enqueued_at)] {grouped}") == [2501, 3]


def test_ids_are_printed_as_json_lines_in_order(orders: str) -> None:
    sent = records("send", "orders", "--batch", 2, stdin="1\n2\n3\n4\n5\n", dsn=orders)
    by_id = {
        message["message_id"]: message["body"] for message in records("message peek", "orders", dsn=orders)
    }
    assert [by_id[record["message_id"]] for record in sent] == [1, 2, 3, 4, 5]


def test_mark_that_says_utf8_is_no_part_of_the_first_line(orders: str) -> None:
    mark = b"\xef\xbb\xbf"
    for option, lines in (
        ("--json", b"1\r\n\r\n2\r\n"),
        ("--text", b"three"),
        ("--messages", b'{"body": 4}'),
    ):
        done = spanmq("send", "orders", option, stdin=mark + lines, dsn=orders)
        assert (done.code, done.err) == (0, "")
    assert bodies(orders) == [1, 2, "three", 4]
    done = spanmq("message delete", "orders", "-", stdin=mark + b"1\r\n2\r\n", dsn=orders)
    assert (done.code, done.err) == (0, "")
    assert bodies(orders) == ["three", 4]


@pytest.mark.parametrize(
    ("options", "stdin", "sent", "said"),
    [
        ((), b"1\n2\n3\n{4\n5\n", [1, 2], "line 4 is not valid JSON: "),
        ((), b'1\n"\xff"\n', [], "line 2 is not UTF-8"),
        (
            ("--messages",),
            b'{"headers": {}}',
            [],
            "line 1 is not valid JSON: a message is an object with a body",
        ),
    ],
)
def test_bad_line_is_named_and_the_batches_before_it_are_sent(
    orders: str, options: tuple[str, ...], stdin: bytes, sent: list[int], said: str
) -> None:
    done = spanmq("send", "orders", "--batch", 2, *options, dsn=orders, stdin=stdin)
    assert (done.code, bodies(orders)) == (1, sent)
    assert done.err.startswith(
        f"spanmq: sent {len(sent)} message{'' if len(sent) == 1 else 's'} before this:\nspanmq: invalid body: {said}"
    )
    assert ("hint: Each line is one JSON value" in done.err) == (options == () and "JSON" in said)


def test_messages_go_from_queue_to_queue_as_they_are(orders: str) -> None:
    messages = [
        '{"body": {"spanmq.bytes": "AAEC"}, "headers": {"x-pgmq-group": "g", "y": 1}}',
        '{"headers": null, "queue": "other", "body": 1.000000000000000000000000000001}',
        '{"body": null}',
    ]
    sent = spanmq(
        "send", "orders", "--messages", "--headers", '{"y": 2}', stdin="\n".join(messages), dsn=orders
    )
    assert sent.code == 0
    printed = spanmq("message peek", "orders", "--json", dsn=orders).out
    again = spanmq("send", "orders", "--messages", stdin=printed, dsn=orders)
    assert again.out == "sent 3 messages to orders\n"
    lines = spanmq("message peek", "orders", "--json", dsn=orders).out.splitlines()
    assert len(lines) == 6
    for line, other in zip(lines[:3], lines[3:], strict=True):
        for field in ("body", "headers"):
            assert json.dumps(json.loads(line)[field]) == json.dumps(json.loads(other)[field])
    assert json.loads(lines[0])["headers"] == {"x-pgmq-group": "g", "y": 2}
    assert all('"body":1.000000000000000000000000000001,' in line for line in (lines[1], lines[4]))


def test_topic_reaches_every_bound_queue(orders: str) -> None:
    records("queue create", "invoices", dsn=orders)
    bound = records("topic bind", "sale.*", "orders", dsn=orders)
    assert bound == [{"pattern": "sale.*", "queue": "orders"}]
    records("topic bind", "sale.#", "invoices", dsn=orders)
    assert records("topic send", "sale.new", '"x"', dsn=orders) == [{"routing_key": "sale.new", "queues": 2}]
    routed = records("topic send", "sale.old", stdin="1\n2\n", dsn=orders)
    assert sorted((receipt["queue"], receipt["message_id"]) for receipt in routed) == [
        ("invoices", 2),
        ("invoices", 3),
        ("orders", 2),
        ("orders", 3),
    ]
    routing = records("topic match", "sale.x", dsn=orders)
    assert sorted(receipt["queue"] for receipt in routing) == ["invoices", "orders"]
    assert records("topic unbind", "sale.*", "orders", dsn=orders)[0]["unbound"] is True
    [binding] = records("topic list", dsn=orders)
    assert (binding["pattern"], binding["queue"]) == ("sale.#", "invoices")


def test_duplicates_are_told_by_their_id(orders: str) -> None:
    sent = records("send", "orders", "1", "--dedup-id", "a", "--priority", 4, dsn=orders)
    sent += records("send", "orders", "2", "--dedup-id", "a", "--dedup-for", 60, dsn=orders)
    lines = '{"body": 3, "dedup_id": "b"}\n{"body": 4, "dedup_id": "a"}\n{"body": 5}\n'
    more = "--messages", "--ordered", "--max-attempts", 2, "--expires-in", 600
    sent += records("send", "orders", *more, dsn=orders, stdin=lines)
    assert [record["message_id"] for record in sent] == [1, 1, 2, 1, 3]
    assert bodies(orders) == [1, 3, 5]
    assert spanmq("send", "orders", "--dedup-id", "a", dsn=orders, stdin="1\n").code == 2
    settled = "--dedup-until", "settled"
    sent = records("send", "orders", "6", "--dedup-id", "a", *settled, dsn=orders)
    sent += records("send", "orders", "--messages", *settled, dsn=orders, stdin=lines)
    sent += records(
        "send", "orders", "7", "--dedup-id", "a", *settled, "--on-duplicate", "replace", dsn=orders
    )
    assert [record["message_id"] for record in sent] == [4, 5, 4, 6, 7]
    assert bodies(orders) == [1, 3, 5, 3, 5, 7]
