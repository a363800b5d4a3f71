"""Pages of dead letters, policies, schedules and runs in a real browser: each act is done once."""

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from service.tests.dashboard import scene
from service.tests.dashboard.browser import Browser
from service.tests.dashboard.conftest import rows
from service.tests.process.dashboard import test_browser
from service.tests.running import service

from spanmq import Client
from spanmq_service.dashboard.app import PAGES

ROW = "#schedule-rows tr"


@pytest.fixture
def at_work(chromium: Browser, filled: str, tmp_path: Path) -> Iterator[Browser]:
    """A browser at a service of the test's own; nothing was complained of at its end."""
    with service(filled, tmp_path) as started:
        chromium.move_to(started.address)
        chromium.open("/")
        chromium.complaints()
        yield chromium
        assert chromium.complaints() == []


def test_dead_letters_are_found_repaired_put_back_and_discarded(at_work: Browser, filled: str) -> None:
    at_work.open("/dead-letters")
    at_work.click("th a.name[href$='queue=invoices']")
    assert "timeout after" in at_work.text("main")
    at_work.find("#error").send_keys("no such thing")
    at_work.click("form.filters button")
    assert "No dead letter matches." in at_work.text("#letter-rows")
    at_work.click("form.filters a.button")

    at_work.click("#letter-rows a[href$='id=1']")
    at_work.click("a[href*='/dead-letters/repair']")
    body = at_work.find("#body")
    body.clear()
    body.send_keys('{"invoice": "repaired"}')
    at_work.click("form.narrow button")
    assert at_work.text("h1") == "Message 1"
    assert rows(filled, "select message from pgmq.q_invoices where msg_id = 1") == [
        ({"invoice": "repaired"},)
    ]

    at_work.open("/queue/dead-letters?queue=invoices")
    at_work.click("a[href*='/dead-letters/redrive']")
    assert at_work.text("#preview strong") == "1"
    at_work.click("form[method=post] button.main")
    assert "1 dead letters are in the queue again" in at_work.text(".notice")

    at_work.open("/queue/dead-letters?queue=orders")
    at_work.click("a[href*='/dead-letters/discard']")
    at_work.find("#confirmation").send_keys("orders")
    at_work.click("form.narrow button.danger")
    assert "1 dead letters were deleted" in at_work.text(".notice")
    assert rows(filled, "select count(*) from spanmq.dead_letters('orders')") == [(0,)]


def test_policy_is_found_and_changed(at_work: Browser, filled: str) -> None:
    at_work.open("/policies")
    at_work.click("a[href$='/queue/policy?queue=orders']")
    setting = at_work.find("#setting-max_attempts")
    setting.clear()
    setting.send_keys("9")
    at_work.click("form.narrow button.main")
    assert "Changed: 1 settings." in at_work.text(".notice")
    assert rows(filled, "select spanmq.get_policy('orders')->'max_attempts'") == [(9,)]


def test_queue_is_made_its_messages_selected_and_it_is_dropped(at_work: Browser, filled: str) -> None:
    from selenium.webdriver.common.keys import Keys

    at_work.open("/")
    at_work.click("a[href='/queues/new']")
    at_work.find("#name").send_keys("fresh")
    at_work.click("form.narrow button.main")
    assert at_work.text("h1") == "fresh"
    rows(filled, "select pgmq.send_batch('fresh', array['1', '2', '3']::jsonb[])")
    at_work.click("nav.tabs a[href^='/queue/messages']")
    for message_id in (1, 3):
        at_work.find(f"#select-{message_id}").send_keys(Keys.SPACE)
    # While rows are selected they stay as they are; the head is updated.
    rows(filled, "select spanmq.pause('fresh')")
    at_work.wait(lambda: "paused" in at_work.text("#queue-head"))
    assert at_work.run("return document.querySelectorAll('#message-rows :checked').length") == 2
    at_work.click("button[name=act][value=delete]")
    assert at_work.text("#preview strong") == "2"
    at_work.click("form[action^='/queue/messages/selected'] button")
    assert "Deleted: 2 messages." in at_work.text(".notice")
    assert rows(filled, "select msg_id from pgmq.q_fresh") == [(2,)]
    at_work.click("a[href^='/queue/drop']")
    at_work.find("#confirmation").send_keys("fresh")
    at_work.click("form.narrow button.danger")
    assert "Dropped" in at_work.text(".notice")
    assert rows(filled, "select count(*) from pgmq.list_queues() where queue_name = 'fresh'") == [(0,)]


def test_theme_and_refresh_are_chosen_and_remembered(at_work: Browser) -> None:
    at_work.open("/")
    at_work.click("a[href='/appearance']")
    at_work.find("#theme option[value=dark]").click()
    at_work.find("#refresh option[value='0']").click()
    at_work.click("form.narrow button.main")
    at_work.open("/", is_dark=False)
    assert at_work.run("return getComputedStyle(document.body).backgroundColor") == "rgb(17, 22, 28)"
    assert not at_work.find("#live-switch").is_displayed()
    at_work.driver.delete_all_cookies()


def test_schedule_is_made_paused_run_resumed_and_ended(at_work: Browser, filled: str) -> None:
    at_work.open("/schedules")
    at_work.click("a[href='/schedules/new']")
    for field, typed in (("name", "hourly"), ("queue", "mail"), ("cron", "0 * * * *")):
        at_work.find(f"#{field}").send_keys(typed)
    at_work.click("form.narrow button.main")
    assert "hourly" in at_work.text(ROW)
    at_work.click(f"{ROW} form[action='/schedules/pause'] button")
    assert "paused" in at_work.text(ROW)
    assert rows(filled, "select is_paused from spanmq.list_schedules()") == [(True,)]
    sent = rows(filled, "select count(*) from pgmq.q_mail")[0][0]
    at_work.click(f"{ROW} form[action='/schedules/run'] button")
    assert rows(filled, "select count(*) from pgmq.q_mail") == [(sent + 1,)]
    at_work.click(f"{ROW} form[action='/schedules/resume'] button")
    assert rows(filled, "select is_paused from spanmq.list_schedules()") == [(False,)]
    at_work.click(f"{ROW} a.danger")
    at_work.click("form.narrow button.danger")
    assert "There are no schedules." in at_work.text(ROW)
    assert rows(filled, "select count(*) from spanmq.list_schedules()") == [(0,)]


def test_breaker_is_closed(at_work: Browser, filled: str) -> None:
    scene.report_worker(filled, "orders", "worker-7", slots=1, held=0, breaker={"open_for": 60, "opening": 1})
    at_work.open("/queue?queue=orders")
    at_work.click("form[action^='/queue/close-breaker'] button")
    assert "of 1 workers: they receive again" in at_work.text(".notice")


def test_worker_is_stopped(at_work: Browser, filled: str) -> None:
    scene.report_worker(filled, "orders", "worker-7", slots=1, held=0)
    at_work.open("/workers")
    at_work.click("#worker-rows a[href^='/workers/stop']")
    at_work.click("form[action^='/workers/stop'] button.danger")
    assert "asked to stop" in at_work.text(".notice")
    assert "stopping" in at_work.text("#worker-rows")


def test_message_is_delivered_now_and_cancelled(at_work: Browser, filled: str) -> None:
    [(message_id,)] = rows(filled, "select pgmq.send('orders', '1'::jsonb, 3600)")
    visible = f"select vt <= clock_timestamp() from pgmq.q_orders where msg_id = {message_id}"
    at_work.open(f"/message?queue=orders&id={message_id}")
    at_work.click("form[action^='/message/deliver'] button")
    assert rows(filled, visible) == [(True,)]
    at_work.click("a.danger[href*='act=cancel']")
    at_work.click("form.narrow button.danger")
    assert rows(filled, visible) == []


def test_dead_message_is_redriven_or_discarded(at_work: Browser, filled: str) -> None:
    at_work.open("/message?queue=invoices&id=1")
    at_work.click("a[href*='/dead-letters/redrive']")
    at_work.click("form[method=post] button.main")
    assert rows(filled, "select msg_id from pgmq.q_invoices where msg_id = 1") == [(1,)]
    [(dead,)] = rows(filled, "select msg_id from spanmq.dead_letters('orders')")
    at_work.open(f"/message?queue=orders&id={dead}")
    at_work.click("a[href*='/dead-letters/discard']")
    at_work.find("#confirmation").send_keys("orders")
    at_work.click("form.narrow button.danger")
    assert rows(filled, "select msg_id from spanmq.dead_letters('orders')") == []


def test_failing_messages_are_retried_and_rejected(at_work: Browser, filled: str) -> None:
    rows(filled, "select pgmq.purge_queue('empty')")

    def fail() -> None:
        with Client(filled) as client:
            for message in client.receive("empty", 10):
                client.nack(message, "no customer", retry_in=600)

    with Client(filled) as client:
        ids = client.send_batch("empty", ["a", "b"])
    for act in ("retry", "reject"):
        fail()
        at_work.open("/queue/failing?queue=empty")
        at_work.click(f"section[aria-labelledby='messages'] a[href^='/queue/failing/{act}']")
        assert at_work.text("#preview strong") == "2"
        at_work.click(f"form[action^='/queue/failing/{act}'] button")
        assert "2 messages" in at_work.text(".notice")
    assert rows(filled, "select msg_id from spanmq.dead_letters('empty') order by 1")[-2:] == [
        (each,) for each in ids
    ]


# No act is left out: what a new one needs is said here.
DONE_IN: dict[Callable[..., None], str] = {
    test_browser.test_everything_that_can_be_done_is_done_once: (
        "/sign-in /sign-out /queue/pause /queue/resume /queue/send /queue/purge"
    ),
    test_dead_letters_are_found_repaired_put_back_and_discarded: (
        "/queue/dead-letters/repair /queue/dead-letters/redrive /queue/dead-letters/discard"
    ),
    test_breaker_is_closed: "/queue/close-breaker",
    test_worker_is_stopped: "/workers/stop",
    test_message_is_delivered_now_and_cancelled: "/message/deliver",
    test_failing_messages_are_retried_and_rejected: "/queue/failing/retry /queue/failing/reject",
    test_queue_is_made_its_messages_selected_and_it_is_dropped: (
        "/queues/new /queue/messages/selected /queue/drop"
    ),
    test_theme_and_refresh_are_chosen_and_remembered: "/appearance",
    test_policy_is_found_and_changed: "/queue/policy",
    test_schedule_is_made_paused_run_resumed_and_ended: (
        "/schedules/new /schedules/pause /schedules/run /schedules/resume /schedules/end"
    ),
}


def test_every_act_is_done() -> None:
    acts = {page.path for page in PAGES if page.method == "POST"}
    assert acts == {path for paths in DONE_IN.values() for path in paths.split()}
    for test, paths in DONE_IN.items():
        # By a click on what leads there: the last part of the address, or the button's.
        source = inspect.getsource(test)
        for path in paths.split():
            assert path.rpartition("/")[2] in source, (test.__name__, path)
