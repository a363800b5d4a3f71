"""`spanmq notify` over a real HTTP server: what is sent when, and what is never sent or printed."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cli.program import ask, do, end, finish, records, spanmq, started
from tests.sql.queue import breaker_report
from tests.webhook import Hook

from spanmq.client import Client


def arrived(hook: Hook) -> dict[str, Any]:
    request = hook.next()
    return {"status": request.status, "path": request.path, **json.loads(request.body)}


@pytest.fixture
def hook() -> Iterator[Hook]:
    opened = Hook()
    yield opened
    opened.close()


def bury(dsn: str, n: int) -> None:
    with Client(dsn) as client:
        client.send_batch("orders", list(range(n)))
        client.reject(client.receive("orders", n), "no <b>card</b>")


def once(hook: Hook, dsn: str, *options: str) -> list[dict[str, Any]]:
    found = records("notify", hook.url, "--once", *options, dsn=dsn)
    return [{name: each[name] for name in ("change", "reason", "n")} for each in found]


def test_problem_is_sent_when_it_begins_grows_and_ends_and_not_between(hook: Hook, orders: str) -> None:
    assert once(hook, orders) == []
    bury(orders, 3)
    assert once(hook, orders) == [{"change": "began", "reason": "dead_letters", "n": 3}]
    sent = arrived(hook)
    assert sent["source"] == "spanmq"
    assert sent["text"].startswith("orders: dead letters: 3 dead letters waiting")
    assert [each["queue"] for each in sent["notices"]] == ["orders"]
    assert once(hook, orders) == []
    bury(orders, 5)
    assert once(hook, orders) == [], "a little more is not announced"
    bury(orders, 20)
    assert once(hook, orders) == [{"change": "changed", "reason": "dead_letters", "n": 28}]
    with Client(orders) as client:
        client.dead_letters.discard("orders")
    assert once(hook, orders) == [], "it may be back at the next look"
    assert once(hook, orders) == [{"change": "ended", "reason": "dead_letters", "n": 0}]
    assert once(hook, orders) == []
    assert ask(orders, "select announced::text from spanmq_core.notice") == "[]"


def test_breaker_that_is_closed_for_a_moment_is_one_problem(hook: Hook, orders: str) -> None:
    open_it, close_it = breaker_report("orders"), breaker_report("orders", None)
    do(orders, open_it)
    assert once(hook, orders) == [{"change": "began", "reason": "breaker_open", "n": 0}]
    do(orders, close_it)
    assert once(hook, orders) == []
    do(orders, open_it)
    assert once(hook, orders) == []
    do(orders, close_it)
    assert [once(hook, orders), once(hook, orders)] == [
        [],
        [{"change": "ended", "reason": "breaker_open", "n": 0}],
    ]


def test_warnings_and_other_queues_are_sent_only_on_request(hook: Hook, orders: str) -> None:
    do(
        orders,
        "select pgmq.create('other')",
        "select spanmq.pause('orders')",
        "select pgmq.send('orders', '1')",
    )
    assert once(hook, orders) == []
    assert once(hook, orders, "--warnings", "--queue", "other") == []
    assert once(hook, orders, "--warnings", "--queue", "Orders") == [
        {"change": "began", "reason": "paused", "n": 1}
    ]


def test_slack_gets_its_form_with_its_signs_escaped(hook: Hook, orders: str) -> None:
    do(orders, breaker_report("orders", error="no <!channel> & more"), "select pgmq.send('orders', '1')")
    with Client(orders) as client:
        client.nack(client.receive("orders"), "no <!channel> & more", category="DEPENDENCY", retry_in=600)
    assert len(once(hook, orders, "--format", "slack")) == 1
    sent = arrived(hook)
    assert sent.keys() == {"status", "path", "text"}
    assert sent["text"].startswith(":red_circle: orders: breaker open: ")
    assert "no &lt;!channel&gt; &amp; more" in sent["text"]


@pytest.mark.parametrize("status", [500, 302, 404])
def test_what_a_webhook_refuses_is_sent_again_and_its_url_is_never_printed(
    hook: Hook, orders: str, status: int
) -> None:
    bury(orders, 1)
    hook.answers = [status]
    done = spanmq("notify", hook.url, "--once", dsn=orders)
    assert done.code == 1
    assert done.err.startswith(f"spanmq: webhook failed: 127.0.0.1 answered {status} you sent to …")
    assert "secret" not in done.out + done.err
    assert arrived(hook)["status"] == status
    assert len(once(hook, orders)) == 1
    assert "secret" not in str(ask(orders, "select string_agg(n::text, ' ') from spanmq_core.notice n"))


def test_program_goes_on_while_the_webhook_is_down_and_its_url_comes_from_the_environment(
    hook: Hook, orders: str
) -> None:
    bury(orders, 1)
    hook.answers = [503, 503]
    with started("notify", "--every", "0.05", dsn=orders, more={"SPANMQ_NOTIFY_URL": hook.url}) as process:
        assert [arrived(hook)["status"] for _ in range(3)] == [503, 503, 200]
        with Client(orders) as client:
            client.dead_letters.discard("orders")
        assert arrived(hook)["notices"][0]["change"] == "ended"
        done = end(process)
    assert done.code == 0, done.err
    assert done.err.count("answered 503") == 2
    assert "secret" not in done.out + done.err
    assert hook.arrived.empty()


def test_two_processes_announce_it_once(hook: Hook, orders: str) -> None:
    bury(orders, 1)
    with Client(orders) as client:
        target = "test"
        held = client.admin.begin_notices(target)
        assert held is not None
        assert (held.announced, client.admin.begin_notices(target)) == ([], None)
        assert client.admin.end_notices(target, held, [{"a": 1}])
        assert not client.admin.end_notices(target, held, [])
        again = client.admin.begin_notices(target, 0.000001)
        assert again is not None
        assert again.announced == [{"a": 1}]
        # Its time is over: another one takes them, and the first records nothing.
        other = client.admin.begin_notices(target)
        assert other is not None
        assert not client.admin.end_notices(target, again, [])
    command = ("notify", hook.url, "--once", "--json")
    with started(*command, dsn=orders) as first, started(*command, dsn=orders) as second:
        lines = [finish(each).out for each in (first, second)]
    assert sorted(map(bool, lines)) == [False, True]
    arrived(hook)
    assert hook.arrived.empty()


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "http://", "ftp://host/secret", "http://me:secret@host/"]
)
def test_url_that_is_no_webhook_is_refused_without_printing_it(orders: str, url: str) -> None:
    done = spanmq("notify", url, "--once", dsn=orders)
    assert (done.code, "must begin with https://" in done.err) == (1, True)
    assert "secret" not in done.err


def test_webhook_that_is_away_is_named_by_its_host(orders: str) -> None:
    bury(orders, 1)
    done = spanmq("notify", "http://127.0.0.1:1/secret", "--once", dsn=orders)
    assert "127.0.0.1 can't be reached: [Errno 111] Connection refused" in done.err
    assert "secret" not in done.err
