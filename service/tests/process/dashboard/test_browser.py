"""The pages in a real browser: whole on a desk and on a phone, live, by keyboard, without complaints."""

from pathlib import Path

import pytest
from service.tests.dashboard.browser import Browser, browser
from service.tests.dashboard.conftest import rows
from service.tests.dashboard.test_browser import PAGES, check_drawn
from service.tests.running import Running, service, token


@pytest.fixture
def viewer(chromium: Browser, busy: Running) -> Browser:
    """A browser at the service whose database stays as it is."""
    chromium.move_to(busy.address)
    return chromium


@pytest.mark.parametrize("name", PAGES)
def test_page_is_drawn_on_a_phone(chromium: Browser, busy: Running, name: str) -> None:
    check_drawn(chromium, busy, name, "phone")


def test_light_and_dark_are_the_reader_s_choice(viewer: Browser) -> None:
    grounds = []
    for is_dark in (False, True):
        viewer.open("/", is_dark=is_dark)
        grounds.append(viewer.run("return getComputedStyle(document.body).backgroundColor"))
    light, dark = ([int(part) for part in each.removeprefix("rgb(")[:-1].split(",")] for each in grounds)
    assert min(light) > 200
    assert max(dark) < 60


def test_keyboard_finds_the_content_first(viewer: Browser) -> None:
    from selenium.webdriver.common.keys import Keys

    viewer.open("/")
    viewer.find("body").send_keys(Keys.TAB)
    viewer.wait(lambda: viewer.run("return document.activeElement.textContent") == "Skip to content")
    assert viewer.run("return document.activeElement.getBoundingClientRect().left >= 0")
    viewer.driver.switch_to.active_element.send_keys(Keys.ENTER)
    viewer.wait(lambda: viewer.run("return document.activeElement.id") == "main")
    viewer.driver.switch_to.active_element.send_keys(Keys.TAB)
    outline = "return getComputedStyle(document.activeElement).outlineStyle"
    assert viewer.run(outline) != "none"


def test_page_is_whole_without_scripts(busy: Running, tmp_path: Path) -> None:
    with browser(busy.address, tmp_path / "profile", runs_scripts=False) as plain:
        plain.open("/?span=6h")
        assert "orders" in plain.text("#rows")
        assert not plain.find("#live-switch").is_displayed()
        plain.click("#rows a[href='/queue?queue=orders']")
        plain.click("nav.tabs a[href='/queue/groups?queue=orders']")
        assert "customer-0" in plain.text("#group-rows")


def test_everything_that_can_be_done_is_done_once(chromium: Browser, filled: str, tmp_path: Path) -> None:
    secret = token(filled, "person")
    with service(filled, tmp_path, tokens=True) as started:
        chromium.move_to(started.address)
        chromium.open("/queue?queue=orders")
        assert chromium.text("h1") == "Sign in"
        chromium.keep_picture("sign-in-desk")
        chromium.find("#token").send_keys("spanmq_wrong")
        chromium.click("form.narrow button")
        assert "No valid token" in chromium.text("#wrong")
        chromium.wait(lambda: "401" in " ".join(chromium.complaints()))
        chromium.find("#token").send_keys(secret)
        chromium.click("form.narrow button")
        assert chromium.text("h1") == "orders"
        assert chromium.run("return document.cookie") == ""

        chromium.click("form[action^='/queue/pause'] button")
        assert "receivers get nothing" in chromium.text(".notice")
        chromium.click("form[action^='/queue/resume'] button")
        assert "get messages again" in chromium.text(".notice")

        chromium.click("a[href^='/queue/send']")
        body = chromium.find("#body")
        body.clear()
        body.send_keys('{"from": "a person"}')
        chromium.find("#group").send_keys("people")
        chromium.click("form.narrow button")
        assert chromium.text("h1") == "Message 42"
        assert '"from": "a person"' in chromium.text("h3:nth-of-type(1) + pre")

        chromium.click("main nav a")
        chromium.click("a[href^='/queue/purge']")
        chromium.find("#confirmation").send_keys("orders")
        chromium.click("form.narrow button.danger")
        assert "41 messages were removed" in chromium.text(".notice")

        chromium.click("form[action='/sign-out'] button")
        assert chromium.text("h1") == "Sign in"
        chromium.open("/")
        assert chromium.text("h1") == "Sign in"
        assert chromium.complaints() == []


def test_page_is_live_and_leaves_alone_what_is_in_use(chromium: Browser, filled: str, tmp_path: Path) -> None:
    with service(filled, tmp_path) as started:
        chromium.move_to(started.address)
        chromium.open("/queue/messages?queue=empty")
        chromium.complaints()
        chromium.run("window.isTheSame = true; scrollTo(0, 120)")
        assert "No unsettled messages." in chromium.text("#message-rows")
        rows(filled, "select pgmq.send_batch('empty', array_fill('1'::jsonb, array[3]))")
        chromium.wait(lambda: "No unsettled messages." not in chromium.text("#message-rows"))
        chromium.run("document.querySelector('#message-rows a[href$=\"id=2\"]').focus({preventScroll: true})")
        before = chromium.run("return scrollY")
        rows(filled, "select pgmq.delete('empty', 1)")
        chromium.wait(lambda: len(chromium.driver.find_elements("css selector", "#message-rows tr")) == 2)
        assert chromium.run("return document.activeElement.getAttribute('href')").endswith("id=2")
        assert abs(chromium.run("return scrollY") - before) < 60
        assert chromium.run("return window.isTheSame")

        # Held still, nothing moves; let go, it looks at once.
        chromium.find("#live-switch").click()
        rows(filled, "select pgmq.delete('empty', 2)")
        chromium.find("#live-switch").click()
        chromium.wait(lambda: len(chromium.driver.find_elements("css selector", "#message-rows tr")) == 1)

        assert chromium.complaints() == []
        assert chromium.text("#live-state") == ""
        started.stop()
        chromium.wait(lambda: "does not answer" in chromium.text("#live-state"))
        assert "id=3" in str(chromium.find("#message-rows a").get_attribute("href"))


def test_ended_session_leads_to_signing_in(chromium: Browser, filled: str, tmp_path: Path) -> None:
    secret = token(filled, "person")
    with service(filled, tmp_path, tokens=True) as started:
        chromium.move_to(started.address)
        chromium.open("/queue?queue=empty")
        chromium.find("#token").send_keys(secret)
        chromium.click("form.narrow button")
        rows(filled, "delete from spanmq_core.session returning 1")
        chromium.wait(lambda: chromium.text("h1") == "Sign in")


def test_routes_are_tried_with_a_token_on_the_page_that_describes_them(
    chromium: Browser, guarded: Running, tokens: dict[tuple[str, str], str]
) -> None:
    chromium.move_to(guarded.address)
    chromium.open("/docs")
    chromium.find("button.authorize").click()
    chromium.find(".modal-ux input").send_keys(tokens["look", "*"])
    chromium.find(".modal-ux button.authorize").click()
    chromium.find(".modal-ux button.btn-done").click()
    operation = "[id$='list_queues_v1_queues_get']"
    chromium.find(f"{operation} .opblock-summary-control").click()
    chromium.find(f"{operation} .try-out__btn").click()
    chromium.find(f"{operation} button.execute").click()
    answered = f"{operation} .live-responses-table tbody .response-col_status"
    chromium.wait(lambda: chromium.text(answered) == "200")
    chromium.keep_picture("docs-desk")
    assert chromium.complaints() == []
