"""Every page in a real browser, drawn on a desk; service/tests/process/dashboard has phones, and what people do."""

from urllib.parse import quote, urlsplit

import pytest
from service.tests.dashboard import scene
from service.tests.dashboard.browser import Browser
from service.tests.running import Running

from spanmq_service.dashboard.app import PAGES as ROUTES
from spanmq_service.dashboard.queue_state import TABS

HOSTILE = quote(scene.HOSTILE_QUEUE, safe="")
PAGES = {
    "queues": "/?span=6h",
    "queue": "/queue?queue=orders&span=6h",
    "queue-small": "/queue?queue=invoices",
    "queue-empty": "/queue?queue=empty",
    "queue-hostile": f"/queue?queue={HOSTILE}",
    "messages": "/queue/messages?queue=orders",
    "messages-search": "/queue/messages?queue=orders&find=order&error=bank",
    "selected": "/queue/messages/selected?queue=orders&act=retry&id=1&id=2",
    "receivers": "/queue/receivers?queue=orders",
    "groups": "/queue/groups?queue=orders",
    "storage": "/queue/storage?queue=orders",
    "create": "/queues/new",
    "drop": "/queue/drop?queue=orders",
    "appearance": "/appearance",
    "figures": "/figures?queue=orders&span=6h",
    "message-dead": "/message?queue=invoices&id=1",
    "message-hostile": f"/message?queue={HOSTILE}&id=2",
    "purge": "/queue/purge?queue=orders",
    "send": "/queue/send?queue=orders",
    "refusal": "/queue?queue=none",
    "dead-letters": "/dead-letters",
    "dead-letters-queue": "/queue/dead-letters?queue=invoices",
    "redrive": "/queue/dead-letters/redrive?queue=invoices",
    "discard": "/queue/dead-letters/discard?queue=invoices",
    "repair": "/queue/dead-letters/repair?queue=invoices&id=1",
    "policies": "/policies",
    "policy": "/queue/policy?queue=orders",
    "schedules": "/schedules",
    "schedule-new": "/schedules/new",
    "schedule-end": "/schedules/end?name=nightly",
    "batches": "/batches",
    "workers": "/workers",
    "worker-stop": f"/workers/stop?worker={quote(scene.HOSTILE)}",
    "tasks": "/tasks",
    "task": f"/task?queue={HOSTILE}&task={quote(scene.HOSTILE)}",
    "search": "/search?find=order",
    "failing-queue": "/queue/failing?queue=orders",
    "failing-retry": "/queue/failing/retry?queue=orders",
    "failing-reject": "/queue/failing/reject?queue=orders&category=UNKNOWN",
    "changes": "/changes",
    "changes-queue": "/queue/changes?queue=orders",
    "pipeline-runs": "/pipeline-runs",
    "pipeline-runs-queue": "/queue/pipeline-runs?queue=orders",
}
# Shown within other tests: the form of signing in; pictures that pages hold.
WITHIN = {"/sign-in", "/chart", "/task/chart"}


def check_drawn(chromium: Browser, busy: Running, name: str, screen: str) -> None:
    chromium.move_to(busy.address)
    chromium.check_drawn(PAGES[name], name, screen, *(["404"] if name == "refusal" else []))


@pytest.mark.parametrize("name", PAGES)
def test_page_is_drawn(chromium: Browser, busy: Running, name: str) -> None:
    check_drawn(chromium, busy, name, "desk")


def test_tabs_of_a_queue_are_short(chromium: Browser, busy: Running) -> None:
    chromium.move_to(busy.address)
    for path, _ in TABS:
        chromium.open(f"{path}?queue=orders")
        assert chromium.run("return document.documentElement.scrollHeight") <= 1_500, path


def test_every_page_is_drawn() -> None:
    drawn = {urlsplit(address).path for address in PAGES.values()}
    assert {page.path for page in ROUTES if page.method == "GET"} == drawn | WITHIN
