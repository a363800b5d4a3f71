"""The pages of workers and of kinds of tasks."""

import re

from tests.dashboard import scene
from tests.dashboard.conftest import Person

from spanmq.client import Client

TIMES = [
    {"kind": "ship", "failed": False, "bucket": 16, "n": 99},
    {"kind": "ship", "failed": True, "bucket": 16, "n": 1},
]


def cells(text: str, *names: str) -> list[str]:
    found = re.findall(rf'data-label="(?:{"|".join(names)})">(.*?)</td>', text)
    return [re.sub(r"<[^>]*>", "", each) for each in found]


def test_workers_are_shown_with_what_they_hold(keeper: Person, filled: str) -> None:
    with Client(filled) as client:
        client.health.report_worker("mail", "a", running_for=5, slots=10, held=3)
        client.health.report_worker("orders", scene.HOSTILE, running_for=5, slots=1, held=0, times=TIMES)
        client.health.report_breaker("mail", "a", 60)
    text = keeper.get("/workers").text
    assert "<script>alert" not in text
    assert cells(text, "Slots", "In flight") == ["1", "0", "10", "3"]
    assert [each.split(" ")[0] for each in cells(text, "Circuit breaker")] == ["closed", "open"]
    text = keeper.get("/tasks").text
    assert cells(text, "Done", "Failed", "Failure rate") == ["99", "1", "1.0 %"]
    assert 'aria-current="true">1 hour<' in text
    assert cells(keeper.get("/tasks", span="1d").text, "Done") == ["99"]
