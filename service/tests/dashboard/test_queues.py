"""The page of all queues: what needs attention first, a page at a time; and queues that are made and dropped."""

import re

from service.tests.dashboard.conftest import Person, rows


def badges(page: str, queue: str) -> list[str]:
    rows_ = re.split(r"</?tr[^>]*>", page.partition('id="rows"')[2])
    [row] = [each for each in rows_ if f">{queue}</a>" in each]
    return re.findall(r'<a class="badge[^>]*>([^<]*)<', row)


def test_what_needs_attention_is_first_with_its_reason(keeper: Person, filled: str) -> None:
    rows(filled, "select pgmq.send('empty', '1')")
    rows(
        filled,
        (
            "select spanmq.report_worker('{orders}', 'w', 1, 1,"
            """ '{"orders": {"breaker": {"open_for": 600, "opening": 1, "error": "no route"}}}')"""
        ),
    )
    page = keeper.get("/").text
    assert badges(page, "empty") == ["no worker"]
    assert badges(page, "mail") == ["paused"]
    assert badges(page, "orders") == ["breaker open", "dead letters", "groups blocked", "failing", "late"]
    assert badges(page, "Reports 2030") == []
    assert "after failures: no route; " in page
    assert re.search(r"1 dead letter waiting to be redriven or discarded, 1 of them from the last hour", page)
    order = re.findall(r'rowheader"><a[^>]*>([^<]*)</a>', page.partition('id="rows"')[2])
    assert (order[:2], order[-1]) == (["empty", "orders"], "Reports 2030")


def test_oldest_message_over_its_target_needs_attention(keeper: Person, filled: str) -> None:
    rows(filled, "update spanmq_core.statistics set oldest_ready_seconds = 301 returning 1")
    assert "late" in badges(keeper.get("/").text, "invoices")
    rows(filled, "update spanmq_core.statistics set oldest_ready_seconds = 299 returning 1")
    assert "late" not in badges(keeper.get("/").text, "invoices")


def test_many_queues_come_a_page_at_a_time(keeper: Person, filled: str) -> None:
    rows(filled, "select pgmq.create('many_' || n) from generate_series(1, 60) n")
    rows(filled, "select pgmq.send('many_' || n, '1') from generate_series(1, 60) n")
    first, second = (keeper.get("/", order="queue", page=page).text for page in (1, 2))
    names = [
        re.findall(r'rowheader"><a[^>]*>([^<]*)</a>', each.partition('id="rows"')[2])
        for each in (first, second)
    ]
    assert [len(each) for each in names] == [50, 16]
    assert not set(names[0]) & set(names[1])
    assert len(first) < 100_000
    # Those of the other page are counted, too: no sample has their messages.
    assert re.findall(r"(\d+) more queues need attention", first) == ["54"]
    assert "page=2#each" in first


def test_queue_is_made_by_whom_may_manage_it(visitor: Person, tokens: dict[tuple[str, str], str]) -> None:
    visitor.sign_in(tokens["manage", "orders"])
    assert visitor.post("/queues/new", name="another").status_code == 403
    assert visitor.post("/queues/new", name="orders").headers["location"] == "/queues/new"


def test_queue_is_dropped_only_by_its_name(keeper: Person, filled: str) -> None:
    exists = "select count(*) from pgmq.list_queues() where queue_name = 'orders'"
    assert keeper.post("/queue/drop?queue=orders", confirmation="order").status_code == 422
    assert rows(filled, exists) == [(1,)]
    assert (
        keeper.post("/queue/drop?queue=orders", confirmation="orders").headers["location"] == "/?done=dropped"
    )
    assert rows(filled, exists) == [(0,)]
    gone = keeper.get("/queue", queue="orders")
    assert (gone.status_code, "Queue &#39;orders&#39; does not exist. If it was dropped" in gone.text) == (
        404,
        True,
    )
    assert ">drop_queue</code>" in keeper.get("/changes").text
    assert ">drop_queue</code>" in keeper.get("/queue/changes", queue="orders").text
    assert keeper.get("/queue/changes", queue="none").status_code == 404
