"""What is failing now, on the pages: causes, their messages, and what is done about them."""

import re
from html import unescape
from typing import Any

import pytest
from service.tests.dashboard import scene
from service.tests.dashboard.conftest import Person, rows
from tests.sql.queue import breaker_report

from spanmq.client import Client

CAUSE = "queue=empty&task=charge&category=UNKNOWN&error_class=KeyError&error=no+customer+%3Cnumber%3E"


@pytest.fixture
def failing(filled: str) -> list[int]:
    """Two causes with the same text, of which one has no task."""
    rows(filled, "select pgmq.purge_queue('empty')")
    with Client(filled) as client:
        bodies: list[Any] = [{"task": "charge", "args": {"id": n}} for n in range(3)] + ["no task"]
        ids = client.send_batch("empty", bodies)
        for message in client.receive("empty", 10):
            error = f"no customer {message.message_id}"
            client.nack(message, error, error_class="KeyError", retry_in=600)
    return ids


def links(page: str, path: str) -> list[str]:
    return [unescape(each) for each in re.findall(rf'(?:href|action)="({path}\?[^"]*)"', page)]


def test_causes_are_on_each_page_with_what_may_be_done(keeper: Person, failing: list[int]) -> None:
    for path in ("/", "/queue?queue=empty", "/tasks", "/queue/failing?queue=empty"):
        page = keeper.get(path)
        assert page.status_code == 200
        assert "no customer &lt;number&gt;" in page.text, path
        for act in ("/queue/failing", "/queue/failing/retry", "/queue/failing/reject"):
            assert f"{act}?{CAUSE}" in links(page.text, act), path


def test_pages_without_a_failure_have_no_such_section(keeper: Person, filled: str) -> None:
    rows(filled, "select pgmq.purge_queue(queue_name::text) from pgmq.list_queues()")
    assert "Failing now" not in keeper.get("/").text
    assert "No such message waits" in keeper.get("/queue/failing", queue="empty").text


def test_messages_of_a_cause_are_shown(keeper: Person, failing: list[int]) -> None:
    for order, expected in (("", failing[2::-1]), ("&messages=oldest", failing[:3])):
        page = keeper.get(f"/queue/failing?{CAUSE}{order}").text
        assert [int(each) for each in re.findall(r'/message\?queue=empty&amp;id=(\d+)"', page)] == expected


def test_cause_without_a_task_is_not_all_tasks(keeper: Person, filled: str, failing: list[int]) -> None:
    cause = CAUSE.replace("task=charge", "task=")
    done = keeper.post(f"/queue/failing/reject?{cause}", "/queue/failing?queue=empty")
    assert done.headers["location"] == "/queue/failing?queue=empty&done=rejected&n=1"
    assert "1 messages are dead letters now" in keeper.get(done.headers["location"]).text
    assert rows(filled, "select msg_id from spanmq.dead_letters('empty')")[-1] == (failing[3],)


def test_messages_of_a_cause_are_retried_now(keeper: Person, filled: str, failing: list[int]) -> None:
    done = keeper.post(f"/queue/failing/retry?{CAUSE}", "/queue/failing?queue=empty")
    assert done.headers["location"] == "/queue/failing?queue=empty&done=retried&n=3"
    found = rows(filled, "select msg_id from spanmq.receive('empty', 10)")
    assert [each for (each,) in found] == failing[:3]


@pytest.mark.parametrize(
    ("act", "words"), [("retry", "become visible at once"), ("reject", "become dead letters")]
)
def test_act_on_a_cause_asks_first_with_how_many(
    keeper: Person, filled: str, failing: list[int], act: str, words: str
) -> None:
    page = keeper.get(f"/queue/failing/{act}?{CAUSE}").text
    assert f"<strong>3</strong> messages {words}" in page
    assert [int(each) for each in re.findall(r'/message\?queue=empty&amp;id=(\d+)"', page)] == failing[:3]
    assert f"/queue/failing/{act}?{CAUSE}" in links(page, f"/queue/failing/{act}")
    none = keeper.get(f"/queue/failing/{act}?{CAUSE.replace('KeyError', 'OSError')}").text
    assert "no failing message matches" in none
    assert "<button" not in none.partition("<main")[2]
    # Nothing has happened yet.
    assert rows(filled, "select count(*) from spanmq.failing_messages('empty')") == [(4,)]


def test_retry_says_that_the_breaker_holds_them(keeper: Person, filled: str, failing: list[int]) -> None:
    rows(filled, breaker_report("empty"))
    assert (
        "The queue delivers nothing now: A worker stopped" in keeper.get(f"/queue/failing/retry?{CAUSE}").text
    )
    assert "delivers nothing" not in keeper.get(f"/queue/failing/reject?{CAUSE}").text
    rows(filled, "update spanmq_core.later set vt = clock_timestamp() where attempts > 0 returning 1")
    page = keeper.get("/queue/failing?queue=empty").text
    assert re.search(r'data-label="Next retry">due, <span class="badge warn">breaker open<', page)


def test_tasks_with_failed_attempts_lead_to_their_failing_messages(
    keeper: Person, filled: str, failing: list[int]
) -> None:
    times = [{"kind": "charge", "failed": True, "bucket": 16, "n": 3}]
    scene.report_worker(filled, "empty", "w", slots=1, held=1, times=times)
    assert "/queue/failing?queue=empty&task=charge" in links(keeper.get("/tasks").text, "/queue/failing")


def test_a_message_whose_retry_is_due_still_counts_as_failing(keeper: Person, filled: str) -> None:
    rows(filled, "select pgmq.send_batch('empty', array['1', '2']::jsonb[])")
    rows(
        filled,
        "select spanmq.nack('empty', max(lease_id), array_agg(msg_id), 'no', retry_in => 0)"
        " from spanmq.receive('empty', 9)",
    )
    assert re.search(r'Failing <span class="badge bad">2</span>', keeper.get("/queue?queue=empty").text)
