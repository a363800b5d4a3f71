"""A headless Chromium, with a profile of its own, that talks to this machine only."""

import base64
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.patience import WAIT_SECONDS

# What a page looked like; a folder that git ignores.
PICTURES = Path(__file__).resolve().parents[3] / "build" / "dashboard"
PICTURE_HEIGHT_MAX = 4_000
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


class Browser:
    """What tests do with it."""

    def __init__(self, driver: Any, address: str) -> None:
        self.driver = driver
        self.address = address

    def open(self, path: str, *, width: int = 1280, height: int = 900, is_dark: bool = False) -> None:
        """Show a page, at a size and in the reader's colors."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        self.driver.get(f"{self.address}{path}")

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def find(self, selector: str) -> Any:
        """Return the only element that fits; waits for it, as a page may still be on its way."""
        self.wait(lambda: len(self.driver.find_elements("css selector", selector)) == 1)
        return self.driver.find_element("css selector", selector)

    def text(self, selector: str) -> str:
        found = self.wait(lambda: (str(self.find(selector).text),))
        return str(found[0])

    def click(self, selector: str) -> None:
        """Click an element, and wait for the page that it leads to."""
        page = self.find("html")

        def press() -> bool:
            self.find(selector).click()
            return True

        # Where a page is live, what was found may have just been replaced.
        self.wait(press)
        self.wait(lambda: self._is_stale(page))

    def wait(self, condition: Any) -> Any:
        """Return what is true at last; an element that a new page has just replaced is looked up again."""
        from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
        from selenium.webdriver.support.ui import WebDriverWait

        gone = (NoSuchElementException, StaleElementReferenceException)
        waiting = WebDriverWait(self.driver, WAIT_SECONDS, poll_frequency=0.05, ignored_exceptions=gone)
        return waiting.until(lambda _: condition())

    def check_drawn(self, path: str, name: str, screen: str, *expected: str) -> None:
        """Show a page on a desk or a phone, keep its picture, and see that it is whole."""
        is_phone = screen == "phone"
        self.open(path, width=375 if is_phone else 1280, is_dark=is_phone)
        self.wait(lambda: self.run("return [...document.images].every((each) => each.complete)"))
        self.keep_picture(f"{name}-{screen}")
        # Where a page is live, it may have just been replaced.
        self.wait(lambda: self.find("h1").is_displayed())
        assert self.run("return [...document.images].every((each) => each.naturalWidth > 0)")
        # Nothing is wider than the screen.
        assert self.run("return document.documentElement.scrollWidth <= innerWidth")
        complaints = self.complaints()
        assert len(complaints) == len(expected), complaints
        assert all(words in said for words, said in zip(expected, complaints, strict=True))

    def move_to(self, address: str) -> None:
        """Take the pages from there. A live page of before would go on asking a server that may have stopped."""
        self.driver.get("about:blank")
        self.complaints()
        self.address = address

    def complaints(self) -> list[str]:
        """Return what the console said since the last time."""
        entries = self.driver.get_log("browser")
        return [str(each["message"]) for each in entries if each["level"] in ("WARNING", "SEVERE")]

    def keep_picture(self, name: str) -> None:
        """Write what the page looks like, from its top to its end."""
        width, height = self.run(
            "return [innerWidth, Math.min(document.documentElement.scrollHeight, arguments[0])]",
            PICTURE_HEIGHT_MAX,
        )
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        shot = {"captureBeyondViewport": True, "clip": clip}
        taken = self.driver.execute_cdp_cmd("Page.captureScreenshot", shot)
        PICTURES.mkdir(parents=True, exist_ok=True)
        (PICTURES / f"{name}.png").write_bytes(base64.b64decode(taken["data"]))

    def _is_stale(self, element: Any) -> bool:
        from selenium.common.exceptions import StaleElementReferenceException, WebDriverException

        try:
            element.is_enabled()
        except StaleElementReferenceException:
            return True
        except WebDriverException as error:
            # What its driver says when the page goes in the middle of the question.
            if "does not belong to the document" in str(error) or "Cannot find context" in str(error):
                return True
            raise
        return False


@contextmanager
def browser(address: str, profile: Path, *, runs_scripts: bool = True) -> Iterator[Browser]:
    """Start one; skips the test where there is no Chromium."""
    chromium, driver_path = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver_path is None:
        pytest.skip("Chromium and its driver are not installed (Debian: chromium, chromium-driver)")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for each in (*OPTIONS, f"--user-data-dir={profile}"):
        options.add_argument(each)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(driver_path))
    try:
        if not runs_scripts:
            # Not the browser's own switch, which headless takes no notice of.
            driver.execute_cdp_cmd("Network.enable", {})
            driver.execute_cdp_cmd("Network.setBlockedURLs", {"urls": ["*.js*"]})
        yield Browser(driver, address)
    finally:
        driver.quit()
