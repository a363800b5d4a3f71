"""The pages of workers and of kinds of tasks."""

import re

from tests.cli.program import do
from tests.dashboard import scene
from tests.dashboard.conftest import Person

TIMES = [
    {"kind": "ship", "failed": False, "bucket": 16, "n": 99},
    {"kind": "ship", "failed": True, "bucket": 16, "n": 1},
]
PROGRESS = [{"msg_id": 3, "kind": "ship", "share": 0.4, "note": "page <4>"}]


def cells(text: str, *names: str) -> list[str]:
    found = re.findall(rf'data-label="(?:{"|".join(names)})">(.*?)</td>', text)
    return [re.sub(r"<[^>]*>", "", each) for each in found]


def test_workers_are_shown_with_what_they_hold(keeper: Person, filled: str) -> None:
    scene.report_worker(filled, "mail", "a", slots=10, held=3)
    scene.report_worker(filled, "orders", scene.HOSTILE, slots=1, held=0, times=TIMES, progress=PROGRESS)
    do(filled, "select spanmq.report_breaker('mail', 'a', 60)")
    text = keeper.get("/workers").text
    assert "<script>alert" not in text
    assert cells(text, "Slots", "In flight") == ["1", "0", "10", "3"]
    assert [each.split(" ")[0] for each in cells(text, "Circuit breaker")] == ["closed", "open"]
    assert [each for each in cells(text, "Started") if "ago" not in each] == []
    assert cells(text, "Progress", "Note") == ["40 %", "page &lt;4&gt;"]
    assert cells(keeper.get("/queue/receivers", queue="orders").text, "Note") == ["page &lt;4&gt;"]
    text = keeper.get("/tasks").text
    assert cells(text, "Done", "Failed attempts", "Failure rate") == ["99", "1", "1.0 %"]
    assert cells(text, "Per second", "p50", "p95") == ["0.03", "0.2 s", "0.2 s"]
    assert 'aria-current="true">1 hour<' in text
    assert cells(keeper.get("/tasks", span="1d").text, "Done") == ["99"]
