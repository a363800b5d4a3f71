"""Messages of a queue by state and by what is in them, and what is done with selected ones."""

import re

import pytest
from service.tests.dashboard import scene
from service.tests.dashboard.conftest import Person, rows

from spanmq.client import Client

SELECTED = "/queue/messages/selected"


def ids(page: str) -> list[int]:
    return [int(each) for each in re.findall(r'rowheader">.*?>(\d+)</a></th>', page)]


@pytest.fixture
def states(filled: str) -> str:
    """Message 1 failed, 2 is being processed, 3 is pending, 4 is delayed, 5 is done."""
    with Client(filled) as client:
        client.queues.set_policy("empty", archive_on_ack=True)
        client.send_batch("empty", [{"n": each} for each in ("one", "two", "three")], group=["a", "b", "a"])
        first, _ = client.receive("empty", 2, lease=scene.HELD_SECONDS)
        client.nack(first, "no customer 17", error_class="KeyError", retry_in=scene.HELD_SECONDS)
        client.send("empty", {"n": "four"}, delay=scene.HELD_SECONDS)
        client.send("empty", {"n": "five"})
        client.archive("empty", 5)
    return filled


def test_messages_are_found_by_state_body_group_and_error(keeper: Person, states: str) -> None:
    for query, found in (
        ({}, [4, 3, 2, 1]),
        ({"order": "oldest"}, [1, 2, 3, 4]),
        ({"state": "failed"}, [1]),
        ({"state": "processing"}, [2]),
        ({"state": "pending"}, [3]),
        ({"state": "delayed"}, [4]),
        ({"state": "done"}, [5]),
        ({"state": "done", "find": "four"}, []),
        ({"find": '"TWO"'}, [2]),
        ({"group": "a"}, [3, 1]),
        ({"error": "keyerror NO customer"}, [1]),
        ({"error": "customer", "group": "b"}, []),
    ):
        assert ids(keeper.get("/queue/messages", queue="empty", **query).text) == found, query


def test_search_reads_a_bounded_number_of_messages_and_goes_on_from_there(
    keeper: Person, filled: str
) -> None:
    rows(filled, "select pgmq.send('empty', '\"needle\"')")
    rows(filled, "select pgmq.send_batch('empty', array_fill('1'::jsonb, array[2100]))")
    page = keeper.get("/queue/messages", queue="empty", find="needle").text
    assert "2,000 messages were searched" in page
    [address] = re.findall(r'href="([^"]*)">Search further<', page)
    assert ids(keeper.get(address.replace("&amp;", "&")).text) == [1]


def test_messages_are_paged_the_newest_first_or_the_oldest(keeper: Person, filled: str) -> None:
    rows(filled, "select pgmq.send_batch('empty', array_fill('1'::jsonb, array[17]))")
    for order, expected in (("", list(range(17, 0, -1))), ("oldest", list(range(1, 18)))):
        page = keeper.get("/queue/messages", queue="empty", order=order).text
        [following] = re.findall(r'href="([^"]*)">Next messages<', page)
        assert ids(page) + ids(keeper.get(following.replace("&amp;", "&")).text) == expected


def test_acts_on_selected_messages_say_before_how_many_they_change(keeper: Person, states: str) -> None:
    for act, changed, left in (
        ("reject", 1, [2, 3, 4]),
        ("retry", 1, [2, 3, 4]),
        ("cancel", 3, [2]),
        ("delete", 1, []),
    ):
        page = f"{SELECTED}?queue=empty&act={act}&id=1&id=2&id=3&id=4"
        assert f"<strong>{changed}</strong> of 4 selected" in keeper.get(page).text
        done = keeper.post(f"{SELECTED}?queue=empty", page, act=act, ids="1,2,3,4")
        assert done.headers["location"] == f"/queue/messages?queue=empty&done={act}&n={changed}"
        assert rows(states, "select msg_id from pgmq.q_empty order by 1") == [(each,) for each in left], act
    assert rows(states, "select msg_id from spanmq.dead_letters('empty')") == [(1,)]


def test_selected_dead_letters_are_redriven(keeper: Person, filled: str) -> None:
    letters = [each for (each,) in rows(filled, "select dead_letter_id from spanmq.dead_letters('invoices')")]
    assert len(letters) == 2
    page = f"/queue/dead-letters/redrive?queue=invoices&letters={letters[1]}"
    assert "<strong>1</strong>" in keeper.get(page).text
    assert "Redrive 1<" in keeper.get(page).text
    done = keeper.post(page)
    assert done.headers["location"] == "/queue/dead-letters?queue=invoices&done=redriven&n=1"
    left = rows(filled, "select dead_letter_id from spanmq.dead_letters('invoices')")
    assert left == [(letters[0],)]


def test_the_newest_failure_of_a_message_stands_first(keeper: Person, filled: str) -> None:
    rows(filled, "select pgmq.send('empty', '1')")
    for error in ("earlier", "later"):
        rows(
            filled,
            f"select spanmq.nack('empty', lease_id, array[msg_id], '{error}', retry_in => 0)"
            " from spanmq.receive('empty', 1)",
        )
    page = keeper.get("/message?queue=empty&id=1").text
    assert 0 < page.index("later") < page.index("earlier")
    # A failure has one number, its attempt: a live page counted others. Only the last one says when it is tried again.
    assert "reversed" not in page
    assert page.count(" again ") == 1
