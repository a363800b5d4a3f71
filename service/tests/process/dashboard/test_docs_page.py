"""The page that describes the routes, in a real browser, with a token and under the policy of the page."""

from service.tests.dashboard.browser import Browser
from service.tests.running import Running


def test_routes_are_tried_with_a_token(
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
