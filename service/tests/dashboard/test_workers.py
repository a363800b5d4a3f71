"""The pages of workers and of kinds of tasks."""

import re

from service.tests.dashboard import scene
from service.tests.dashboard.conftest import Person, rows

TIMES = [
    {"kind": "ship", "failed": False, "bucket": 16, "n": 99},
    {"kind": "ship", "failed": True, "bucket": 16, "n": 1},
]
EARLIER = "update spanmq_core.task_time set minute = minute - interval '5 minutes' returning 1"
PROGRESS = [{"msg_id": 3, "kind": "ship", "share": 0.4, "note": "page <4>"}]


def cells(text: str, *names: str) -> list[str]:
    found = re.findall(rf'data-label="(?:{"|".join(names)})">(.*?)</td>', text)
    return [re.sub(r"<[^>]*>", "", each) for each in found]


def test_worker_of_several_queues_is_one_row_with_its_slots_once(keeper: Person, filled: str) -> None:
    for queue, held in (("mail", 3), ("orders", 4)):
        scene.report_worker(filled, queue, "a", slots=10, held=held)
    scene.report_worker(filled, "orders", "b", slots=2, held=0)
    text = keeper.get("/workers").text
    assert cells(text, "Queues", "Slots", "In flight") == ["mail 3, orders 4", "10", "7", "orders", "2", "0"]


def test_lists_are_sorted_and_filtered_by_the_same_parameters(keeper: Person, filled: str) -> None:
    for name, held in (("a", 1), ("b", 3), ("c", 2)):
        scene.report_worker(filled, "mail", name, slots=10, held=held)

    def names(**query: str) -> list[str]:
        text = keeper.get("/workers", **query).text.partition('id="worker-rows"')[2]
        return re.findall(r'rowheader"><span class="name">([^<]*)<', text)

    assert names(order="held") == ["b", "c", "a"]
    assert names(order="-held") == ["a", "c", "b"]
    assert names(find="B") == ["b"]
    page = keeper.get("/workers", order="held", find="mail").text
    assert 'aria-sort="descending"><a href="/workers?order=-held&amp;find=mail">' in page
    for path in (
        "/schedules?order=-next",
        "/tasks?order=p95&span=1d",
        "/queue/failing?queue=orders&order=retry",
    ):
        assert keeper.get(path).status_code == 200, path
    for path, words in (
        ("/schedules", "No schedule matches"),
        ("/batches", "No batch matches"),
        ("/pipeline-runs", "No run matches"),
        ("/changes", "No change matches"),
        ("/queue/changes?queue=orders", "No change matches"),
    ):
        assert words in keeper.get(f"{path}{'&' if '?' in path else '?'}find=no-such-thing").text, path
    assert "set_policy" in keeper.get("/changes", find="SET_POLICY").text


def test_workers_are_shown_with_what_they_hold(keeper: Person, filled: str) -> None:
    scene.report_worker(filled, "orders", scene.HOSTILE, slots=1, held=0, times=TIMES, progress=PROGRESS)
    breaker = {"open_for": 60, "opening": 1, "error": "<payments> are down"}
    slow = [{"msg_id": 7, "kind": "<ship>", "seconds": 90}]
    scene.report_worker(filled, "mail", "a", slots=10, held=3, breaker=breaker, slow=slow)
    text = keeper.get("/workers").text
    assert "<script>alert" not in text
    assert cells(text, "Slots", "In flight") == ["1", "0", "10", "3"]
    assert [each.split(" ")[0] for each in cells(text, "Circuit breaker")] == ["closed", "open"]
    assert "&lt;payments&gt; are down" in cells(text, "Circuit breaker")[1]
    assert [each for each in cells(text, "Started") if "ago" not in each] == []
    assert cells(text, "Ran for") == ["1 min 30 s"]
    assert "&lt;ship&gt;" in text
    assert cells(text, "Progress", "Note") == ["40 %", "page &lt;4&gt;"]
    assert cells(keeper.get("/queue/receivers", queue="orders").text, "Note") == ["page &lt;4&gt;"]
    text = keeper.get("/tasks").text
    assert cells(text, "Done", "Failed attempts", "Failure rate") == ["99", "1", "1.0 %"]
    assert cells(text, "Per second", "p50", "p95") == ["0.03", "0.2 s", "0.2 s"]
    assert 'aria-current="true">1 hour<' in text
    assert cells(keeper.get("/tasks", span="1d").text, "Done") == ["99"]


def test_task_has_a_page_with_charts_and_numbers(keeper: Person, filled: str) -> None:
    scene.report_worker(filled, "orders", "a", slots=1, held=0, times=TIMES)
    rows(filled, EARLIER)
    [address] = re.findall(r'rowheader"><a class="name" href="([^"]*)">ship<', keeper.get("/tasks").text)
    assert address == "/task?queue=orders&amp;task=ship&amp;span=1h"
    page = keeper.get("/task", queue="orders", task="ship").text
    assert cells(page, "Done", "Failed attempts", "p50", "p95") == ["99", "1", "0.2 s", "0.2 s"]
    pictures = re.findall(r'<img src="([^"]*)"', page)
    assert len(pictures) == 2
    for each in pictures:
        picture = keeper.get(each.replace("&amp;", "&"))
        assert picture.headers["content-type"] == "image/svg+xml"
        assert "No data" not in picture.text
    assert "half took at most" in picture.text
    assert "No worker has reported this task" in keeper.get("/task", queue="orders", task="none").text
    assert keeper.get("/task/chart", queue="orders", task="ship", of="none").status_code == 400
    assert keeper.get("/task", queue="none", task="ship").status_code == 404


def test_worker_is_stopped_after_a_preview(keeper: Person, filled: str) -> None:
    for queue in ("mail", "orders"):
        scene.report_worker(filled, queue, "a/1", slots=10, held=3)
    [page] = re.findall(r'href="(/workers/stop[^"]*)"', keeper.get("/workers").text)
    preview = keeper.get(page).text
    assert "In flight</dt><dd>6<" in preview
    done = keeper.post(page)
    assert done.headers["location"] == "/workers?done=stopped"
    text = keeper.get("/workers?done=stopped").text
    assert "The worker is asked to stop" in text
    assert ">stopping<" in text
    assert "/workers/stop" not in text
    assert rows(filled, "select queue, command from spanmq.report_worker('{mail}', 'a/1', 60)") == [
        (None, "stop")
    ]
    assert "stop_worker" in keeper.get("/changes").text
    assert "No worker of this name" in keeper.get("/workers/stop", worker="b").text
    assert keeper.post("/workers/stop?worker=b", page).status_code == 404
