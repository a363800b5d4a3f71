"""No act is left out in the browser: what a new one needs is said here."""

import inspect
from collections.abc import Callable

from service.tests.process.dashboard import test_browser, test_browser_acts

from spanmq_service.dashboard.app import PAGES

DONE_IN: dict[Callable[..., None], tuple[str, ...]] = {
    test_browser.test_everything_that_can_be_done_is_done_once: (
        *("/sign-in", "/sign-out", "/queue/pause", "/queue/resume", "/queue/send", "/queue/purge"),
    ),
    test_browser_acts.test_dead_letters_are_found_repaired_put_back_and_discarded: (
        *("/queue/dead-letters/repair", "/queue/dead-letters/redrive", "/queue/dead-letters/discard"),
    ),
    test_browser_acts.test_breaker_is_closed: ("/queue/close-breaker",),
    test_browser_acts.test_worker_is_stopped: ("/workers/stop",),
    test_browser_acts.test_message_is_delivered_now_and_cancelled: ("/message/deliver",),
    test_browser_acts.test_failing_messages_are_retried_and_rejected: (
        *("/queue/failing/retry", "/queue/failing/reject"),
    ),
    test_browser_acts.test_queue_is_made_its_messages_selected_and_it_is_dropped: (
        *("/queues/new", "/queue/messages/selected", "/queue/drop"),
    ),
    test_browser_acts.test_theme_and_refresh_are_chosen_and_remembered: ("/appearance",),
    test_browser_acts.test_policy_is_found_and_changed: ("/queue/policy",),
    test_browser_acts.test_schedule_is_made_paused_run_resumed_and_ended: (
        *("/schedules/new", "/schedules/pause", "/schedules/run", "/schedules/resume"),
        "/schedules/end",
    ),
}


def test_every_act_is_done() -> None:
    acts = {page.path for page in PAGES if page.method == "POST"}
    assert acts == {path for paths in DONE_IN.values() for path in paths}
    for test, paths in DONE_IN.items():
        # By a click on what leads there: the last part of the address, or the button's.
        source = inspect.getsource(test)
        for path in paths:
            assert path.rpartition("/")[2] in source, (test.__name__, path)
