"""What is failing now: causes of the messages that wait for another attempt, and what is done about them."""

import psycopg
import pytest
from tests.sql.queue import Connection

from spanmq.client import Client
from spanmq.model import FailingCause
from spanmq.model.cause import pattern_of

ERRORS = [
    "no customer 17",
    "key 'a b' is missing in \"c\"",
    "it's 3.14.15 and isn't 'x'",
    "order 3f2504e0-4f89-41d3-9a0c-0305e82c3301 at 0xDEADBEEF",
    "commit 9fceb02d0ae598e95dc970b74767f19372d61af8 deadbeef",
    "  first line\twith  blanks \r\nsecond 2",
    "\n",
    "",
    "Fehler: Straße 12 fehlt",
    "a" * 3000 + " 17",
    "550 5.1.1 mailbox unavailable",
    "(550, b'5.1.1 no user 17')",
    "404 Client Error: Not Found for url 12",
    "Client error '404 Not Found' for url 'https://a/1'",
    "HTTP/1.1 502 Bad Gateway, HTTP Error 503: after 12.5 s",
    "STATUS CODE: 429 (code=1234), status_code=404.5",
    "777 rows, 5.1.1, v1.2.x3",
]


@pytest.fixture
def client(jobs: Connection) -> Client:
    return Client(connection=jobs)


def fail(
    client: Client, bodies: list[object], error: str, *, retry_in: float = 600.0, **more: str
) -> list[int]:
    """Send messages, and fail them together."""
    ids = client.send_batch("jobs", bodies)
    held = [each for each in client.receive("jobs", 1000) if each.message_id in ids]
    assert len(held) == len(ids)
    client.nack(held, error, retry_in=retry_in, **more)
    return ids


def told(causes: list[FailingCause]) -> list[tuple[object, ...]]:
    return [(each.task, each.error_class, each.error, each.count) for each in causes]


@pytest.mark.parametrize("error", ERRORS)
def test_errors_are_grouped_as_those_of_dead_letters(connection: Connection, error: str) -> None:
    found = connection.execute("select spanmq_core.error_pattern(%s)", [error]).fetchone()
    assert found == (pattern_of(error),)


def test_causes_differ_by_their_status_and_have_an_example(client: Client) -> None:
    fail(client, [1, 2], "HTTP 404 for order 17")
    fail(client, [3], "HTTP 503 for order 18")
    found = client.inspect.failing("jobs")
    assert [(each.error, each.count, each.example) for each in found] == [
        ("HTTP 404 for order <number>", 2, "HTTP 404 for order 17"),
        ("HTTP 503 for order <number>", 1, "HTTP 503 for order 18"),
    ]
    assert len(client.inspect.failing_messages("jobs", error="HTTP 404 for order <number>")) == 2


def test_causes_are_told_with_tasks_counts_and_times(client: Client) -> None:
    task = {"task": "charge", "args": {}}
    first = fail(client, [task, task], "no customer 17", error_class="KeyError")
    second = fail(client, [task], "no customer 18", error_class="KeyError")
    fail(client, ["other"], "timeout", retry_in=0.0)
    client.send("jobs", "never failed", delay=600)
    charge, other = client.inspect.failing("jobs")
    assert told([charge, other]) == [
        ("charge", "KeyError", "no customer <number>", 3),
        (None, None, "timeout", 1),
    ]
    assert (charge.queue, charge.attempts, charge.is_exact, charge.first_message_id) == (
        "jobs",
        1,
        True,
        first[0],
    )
    messages = client.inspect.failing_messages("jobs", task="charge")
    assert [each.message_id for each in messages] == first + second
    assert [each.error for each in messages] == ["no customer 17", "no customer 17", "no customer 18"]
    assert charge.first_failed_at == messages[0].first_failed_at
    assert charge.last_failed_at == messages[-1].last_failed_at
    assert charge.retry_at == min(each.retry_at for each in messages)


def test_last_failure_of_a_message_is_its_cause_and_its_first_is_told(client: Client) -> None:
    [message_id] = fail(client, ["a"], "first", retry_in=0.0)
    [early] = client.inspect.failing("jobs")
    client.nack(client.receive("jobs", 10), "second", retry_in=600)
    [late] = client.inspect.failing("jobs")
    assert (late.error, late.attempts, late.first_message_id) == ("second", 2, message_id)
    assert late.first_failed_at == early.first_failed_at
    assert late.last_failed_at is not None
    assert early.last_failed_at is not None
    assert late.last_failed_at > early.last_failed_at


def test_messages_that_are_leased_settled_or_released_unfailed_are_not_failing(client: Client) -> None:
    fail(client, ["retried"], "boom", retry_in=0.0)
    client.send("jobs", "fresh")
    retried, fresh = client.receive("jobs", 10)
    assert client.inspect.failing("jobs") == []
    client.release(fresh)
    assert client.inspect.failing("jobs") == []
    # Its attempt was given back, and its failure stays.
    client.release(retried)
    assert told(client.inspect.failing("jobs")) == [(None, None, "boom", 1)]
    client.ack(client.receive("jobs", 10))
    assert client.inspect.failing("jobs") == []


def test_message_that_set_vt_hides_is_not_failing(client: Client) -> None:
    message_id = client.send("jobs", "read as in PGMQ")
    client.receive("jobs", 10)
    client.set_vt("jobs", message_id, 600)
    assert client.inspect.failing("jobs") == []
    assert client.inspect.failing_messages("jobs") == []


def test_all_queues_are_asked_at_once_and_the_most_comes_first(client: Client) -> None:
    fail(client, ["a"], "one")
    client.queues.create("others")
    client.send_batch("others", ["a", "b"])
    client.nack(client.receive("others", 10), "two", retry_in=600)
    assert [(each.queue, each.error) for each in client.inspect.failing()] == [
        ("others", "two"),
        ("jobs", "one"),
    ]
    # Of fewer queues than fail those with the most messages are read.
    assert [each.queue for each in client.inspect.failing(limit=1)] == ["others"]
    assert [(each.queue, each.failing) for each in client.health.latest(["Others"])] == [("others", 2)]


def test_causes_of_very_many_messages_are_estimated_from_a_sample(client: Client) -> None:
    for number in range(99):
        fail(client, list(range(10)), f"often {number}", retry_in=600)
    for _ in range(10):
        fail(client, list(range(10)), "rarely", retry_in=600)
    causes = client.inspect.failing("jobs")
    assert told(causes)[0][2] == "often <number>"
    assert not causes[0].is_exact
    assert 900 < causes[0].count <= 1090
    assert abs(sum(each.count for each in causes) - 1090) <= len(causes)
    # The next look draws the same.
    assert client.inspect.failing("jobs") == causes


def test_messages_of_a_cause_are_listed_in_pages(client: Client) -> None:
    wanted = []
    for number in range(30):
        wanted += fail(client, list(range(7)), f"order {number}", retry_in=600)
        fail(client, [0], "other", retry_in=600)
    found: list[int] = []
    while page := client.inspect.failing_messages(
        "jobs", error="order <number>", after=found[-1] if found else 0, limit=40
    ):
        found += [each.message_id for each in page]
    assert found == wanted
    found = []
    while page := client.inspect.failing_messages(
        "jobs", error="order <number>", after=found[-1] if found else 0, limit=40, newest_first=True
    ):
        found += [each.message_id for each in page]
    assert found == wanted[::-1]


def test_messages_of_a_cause_are_retried_at_once(client: Client) -> None:
    wanted = fail(client, [1, 2, 3], "database is away", retry_in=600)
    fail(client, [4], "other", retry_in=600)
    assert client.queues.retry_failing("jobs", error="database is away", limit=2) == 2
    assert client.queues.retry_failing("jobs", error="database is away") == 1
    assert client.queues.retry_failing("jobs", error="database is away") == 0
    found = client.receive("jobs", 10)
    assert [(each.message_id, each.attempt) for each in found] == [(each, 2) for each in wanted]


def test_messages_of_a_cause_become_dead_letters_with_their_error(client: Client) -> None:
    wanted = fail(client, [1, 2], "no customer 17", error_class="KeyError", traceback="Traceback: a")
    wanted += fail(client, [3], "no customer 18", error_class="KeyError")
    fail(client, [4], "other")
    assert client.queues.reject_failing("jobs", error="no customer <number>", error_class="KeyError") == 3
    dead = client.dead_letters.list("jobs")
    assert [each.message_id for each in dead] == wanted
    assert [each.error for each in dead] == ["no customer 17", "no customer 17", "no customer 18"]
    assert (dead[0].error_class, dead[0].traceback, dead[0].category, dead[0].attempts) == (
        *("KeyError", "Traceback: a", "UNKNOWN", 1),
    )
    assert told(client.inspect.failing("jobs")) == [(None, None, "other", 1)]


def test_only_failing_messages_are_acted_on_whatever_ids_are_given(client: Client) -> None:
    failing = fail(client, [1], "boom", retry_in=0.0)
    leased = client.receive("jobs", 10)
    delayed, fresh = client.send("jobs", 2, delay=600), client.send("jobs", 3)
    ids = [*failing, delayed, fresh, 10**6]
    assert client.queues.retry_failing("jobs", message_ids=ids) == 0
    assert client.queues.reject_failing("jobs", message_ids=ids) == 0
    client.nack(leased, "again", retry_in=600)
    assert client.queues.retry_failing("jobs", message_ids=[fresh, *failing]) == 1
    assert client.queues.reject_failing("jobs", message_ids=ids) == 1
    assert [each.message_id for each in client.dead_letters.list("jobs")] == failing
    assert [each.message_id for each in client.receive("jobs", 10)] == [fresh]


def test_rejected_message_blocks_its_group_and_retried_one_continues_it(client: Client) -> None:
    client.queues.set_policy("jobs", ordered=True, dead_letter_blocks_group=True)
    first = client.send("jobs", 1, group="a")
    second = client.send("jobs", 2, group="a")
    client.nack(client.receive("jobs", 1), "boom", retry_in=600)
    assert client.receive("jobs", 10) == []
    client.queues.retry_failing("jobs")
    assert [each.message_id for each in client.receive("jobs", 1)] == [first]
    client.queues.purge("jobs")
    first = client.send("jobs", 1, group="a")
    second = client.send("jobs", 2, group="a")
    client.nack(client.receive("jobs", 1), "boom", retry_in=600)
    assert client.queues.reject_failing("jobs") == 1
    assert client.receive("jobs", 10) == []
    client.dead_letters.discard("jobs")
    assert [each.message_id for each in client.receive("jobs", 1)] == [second]


def test_unknown_filter_is_refused(client: Client) -> None:
    with pytest.raises(TypeError, match="colour"):
        client.queues.retry_failing("jobs", colour="red")  # type: ignore[call-arg]
    with pytest.raises(psycopg.Error):
        client.connection.execute("select spanmq.failing('jobs', null)")
