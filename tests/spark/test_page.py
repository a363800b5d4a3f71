"""The page of a report is whole at any instant, whoever is killed as it is written."""

import os
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from spanmq.spark.jobs.page import PipelineReport, write_page

FOUND = PipelineReport([{"queue": "orders", "messages": 7}], [], [], [], [], [], 60.0, 0.1, None)


def test_reader_of_the_last_page_goes_on_with_it(tmp_path: Path) -> None:
    page = tmp_path / "reports" / "page.html"
    write_page(page, FOUND)
    # A page that is written over is for a while less than a page: a kill would leave it so.
    with page.open(encoding="utf-8") as reader:
        write_page(page, FOUND)
        assert reader.read().endswith("</html>\n")
        assert os.fstat(reader.fileno()).st_nlink == 0
    assert list(page.parent.iterdir()) == [page]


def test_link_to_a_page_stays_one(tmp_path: Path) -> None:
    (tmp_path / "newest.html").symlink_to("page.html")
    write_page(tmp_path / "newest.html", FOUND)
    assert (tmp_path / "newest.html").readlink() == Path("page.html")
    assert "orders" in (tmp_path / "page.html").read_text("utf-8")


def test_no_table_is_wider_than_a_page(tmp_path: Path) -> None:
    at = datetime(2030, 1, 31, tzinfo=UTC)
    figures = {"messages": 7, "first_archived_at": at, "last_archived_at": at} | {
        f"figure_{number}": 1.5 for number in range(8)
    }
    window = {"queue": "orders", "number": 0, "at": at, "rate": 1.0}
    window |= dict.fromkeys(("waited_p50", "waited_p95", "handled_p95"), 0.5)
    groups = [{"queue": "orders", "group": "a", "messages": 7, "seconds": 1.0, "attempts_max": 2}]
    failures = [{"queue": "orders", "category": "UNKNOWN", "outcome": "dead", "failures": 7}]
    found = replace(
        FOUND, queues=[{"queue": "orders", **figures}], windows=[window], groups=groups, failures=failures
    )
    write_page(tmp_path / "page.html", found)
    text = (tmp_path / "page.html").read_text("utf-8")
    assert re.findall(r"<dt>([^<]*)</dt>", text) == [name.replace("_", " ") for name in figures]
    assert max(head.count("<th>") for head in re.findall(r"<tr>(<th>.*?)</tr>", text)) <= 4


def test_page_says_what_it_is_about_and_what_is_not_known(tmp_path: Path) -> None:
    window = {"queue": "orders", "number": 0, "at": datetime(2030, 1, 31, tzinfo=UTC), "rate": 1.0}
    window |= {"waited_p50": 0.5, "waited_p95": 0.7, "handled_p95": None}
    groups = [{"queue": "orders", "group": None, "messages": 7}]
    write_page(tmp_path / "page.html", replace(FOUND, windows=[window], groups=groups, source="the lake a<b"))
    text = (tmp_path / "page.html").read_text("utf-8")
    assert re.search(
        r"<title>spanmq report: From the lake a&lt;b, \d{4}-\d\d-\d\d \d\d:\d\d UTC</title>", text
    )
    assert re.findall(r'<span class="\w+">([^<]*)<', text) == ["half waited less", "95 % waited less"]
    assert "Not known: no message was received" in text
    assert "None" not in text


def test_page_goes_into_a_pipe_too(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    # A page is less than a pipe holds.
    write_page(Path(f"/dev/fd/{writing}"), FOUND)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as reader:
        assert reader.read().endswith("</html>\n")
