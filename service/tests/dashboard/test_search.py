"""The search for messages in all queues, from the first page."""

import re
from html import unescape
from typing import Any

import pytest
from service.tests.dashboard import scene
from service.tests.dashboard.conftest import Person, rows

from spanmq.client import Client
from spanmq_service.dashboard import search


def found(page: str) -> list[tuple[str, int, str]]:
    """Return the queue, id and state of each message found."""
    return [
        (unescape(queue), int(message), state)
        for message, queue, state in re.findall(
            r'rowheader"><a[^>]*>(\d+)</a></th>\s*<td[^>]*><a[^>]*>([^<]*)</a></td>\s*'
            r"<td[^>]*><span[^>]*>([a-z]+)<",
            page,
        )
    ]


@pytest.fixture
def shops(filled: str) -> str:
    """Order 4711 in two queues: waiting, failing, dead and archived."""
    with Client(filled) as client:
        for name in ("shop", "till"):
            client.queues.create(name)
        client.send_batch("shop", [{"order": 4711, "n": each} for each in range(3)])
        first, second = client.receive("shop", 2, lease=scene.HELD_SECONDS)
        client.nack(first, "bank is away", error_class="BankError", retry_in=scene.HELD_SECONDS)
        client.reject(second, "no such order")
        client.send("till", {"receipt": 1}, headers={"trace": "Order-4711"})
        client.send("till", {"receipt": 2, "of": "order 4711"})
        client.archive("till", 2)
    return filled


def test_text_is_found_in_all_queues_and_states(keeper: Person, shops: str) -> None:
    assert 'action="/search"' in keeper.get("/").text
    everything = {("shop", 1, "failing"), ("shop", 2, "dead"), ("shop", 3, "pending")}
    everything |= {("till", 1, "pending"), ("till", 2, "completed")}
    hits = found(keeper.get("/search", find="4711").text)
    assert set(hits) == everything
    assert len(hits) == len(everything)
    assert set(found(keeper.get("/search", find="ORDER-4711").text)) == {("till", 1, "pending")}
    assert set(found(keeper.get("/search", find="bankerror").text)) == {("shop", 1, "failing")}
    assert "No message matches" in keeper.get("/search", find="no such text anywhere").text
    assert "<table" not in keeper.get("/search").text


def test_id_is_found_in_all_queues_before_texts(keeper: Person, shops: str) -> None:
    hits = found(keeper.get("/search", find="2").text)
    by_queue: dict[str, Any] = {}
    for queue, message, state in hits:
        by_queue.setdefault(queue, (message, state))
    assert by_queue["shop"] == (2, "dead")
    assert by_queue["till"] == (2, "completed")
    assert by_queue["orders"][0] == 2
    rows(shops, "select pgmq.send('empty', '1'), pgmq.delete('empty', 1)")
    assert ("empty", 1, "completed") in found(keeper.get("/search", find="1").text)
    for number in (10**18, 10**30):
        assert keeper.get("/search", find=str(number)).status_code == 200


def test_search_goes_on_with_the_queues_behind_the_first_ones(
    keeper: Person, shops: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "SECONDS", 0.0)
    assert found(keeper.get("/search", find="4711").text) == []
    monkeypatch.setattr(search, "SECONDS", 600.0)
    monkeypatch.setattr(search, "SHOWN", 1)
    monkeypatch.setattr(search, "AT_ONCE", 1)
    hits, page, n_pages = list[tuple[str, int, str]](), keeper.get("/search", find="4711").text, 0
    while following := re.findall(r'href="(/search[^"]*)">Search the other', page):
        hits += found(page)
        n_pages += 1
        page = keeper.get(unescape(following[0])).text
    hits += found(page)
    assert n_pages > 0
    assert {queue for queue, _, _ in hits} == {"shop", "till"}


def test_search_shows_only_what_the_visitor_may_look_at(
    visitor: Person, tokens: dict[tuple[str, str], str]
) -> None:
    visitor.sign_in(tokens["look", "orders"])
    text = visitor.get("/search", find="1").text
    assert {queue for queue, _, _ in found(text)} == {"orders"}
    assert "Searched: 1 queue," in text


def test_of_each_queue_the_newest_are_shown_with_the_way_to_the_rest(keeper: Person, filled: str) -> None:
    rows(filled, "select pgmq.send_batch('empty', array_fill('\"needle\"'::jsonb, array[2100]))")
    rows(filled, "select pgmq.send('orders', '\"needle\"')")
    page = keeper.get("/search", find="needle").text
    hits = found(page)
    assert [each for each in hits if each[0] == "empty"] == [
        ("empty", n, "pending") for n in range(2100, 2090, -1)
    ]
    assert [queue for queue, _, _ in hits if queue != "empty"] == ["orders"]
    assert re.findall(r'href="/queue/messages\?queue=(\w+)&amp;find=needle"', page) == ["empty"]
