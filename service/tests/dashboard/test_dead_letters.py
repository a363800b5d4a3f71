"""The pages of dead letters: which are shown, and what becomes of those that were chosen."""

import re
from html import unescape

import pytest
from service.tests.dashboard import scene
from service.tests.dashboard.conftest import Person, rows

from spanmq.client import Client
from spanmq.model.cause import causes_of, pattern_of

WAITING = "select count(*) from spanmq.dead_letters('mail')"


@pytest.fixture
def many(filled: str) -> str:
    """Sixty more, of two causes, in the queue `mail`."""
    with Client(filled) as client:
        client.queues.resume("mail")
        taken = client.receive("mail", 60, lease=600)
        for message in taken[:40]:
            error = f"no mailbox {message.message_id} at 'example.org'"
            client.reject(message, error, category="PERMANENT", error_class="MailboxError")
        client.reject(taken[40:], "timeout after 30 s", category="TRANSIENT")
    return filled


def test_overview_counts_by_queue_and_category(keeper: Person, many: str) -> None:
    text = keeper.get("/dead-letters").text
    assert text.index("mail") < text.index("invoices")  # those first that have most
    assert "/queue/dead-letters?queue=mail&amp;category=PERMANENT" in text


def test_letters_are_paged_the_newest_first_or_the_oldest(keeper: Person, many: str) -> None:
    for order, ids in (("", range(60, 0, -1)), ("oldest", range(1, 61))):
        page, shown = keeper.get("/queue/dead-letters", queue="mail", order=order).text, list[int]()
        for _ in range(5):
            shown += [int(each) for each in re.findall(r'/message\?queue=mail&amp;id=(\d+)"', page)]
            [*following] = re.findall(r'href="([^"]*after=[^"]*)#letters">Next dead letters', page)
            page = keeper.get(unescape(following[0])).text if following else ""
        assert shown == list(ids), order


def test_page_over_all_queues_has_their_causes(keeper: Person, many: str) -> None:
    page = keeper.get("/dead-letters").text.partition('id="causes"')[2]
    assert [int(each) for each in re.findall(r'class="n"><a [^>]*>(\d+)</a>', page)][:2] == [40, 20]
    assert "no mailbox &lt;number&gt; at &lt;text&gt;" in page
    assert re.search(r'class="example"[^>]*>no mailbox \d+ at ', page)


def test_redrive_is_previewed_with_errors_and_bodies(keeper: Person, many: str) -> None:
    page = keeper.get(
        "/queue/dead-letters/redrive", queue="mail", until="2999-01-31T12:00:00.123456+00:00"
    ).text
    assert "2999-01-31 12:00:00" in page
    assert ".123456<" not in page
    assert len(re.findall(r'data-label="Error" class="line"><span>.*?no mailbox', page)) == 12
    assert len(re.findall(r'data-label="Body" class="body line"><code>\{', page)) == 12


def test_filters_choose(keeper: Person, many: str) -> None:
    for filters, count in (
        ({"category": "TRANSIENT"}, 20),
        ({"error": "mailbox 1[0-9] "}, 10),
        ({"error_class": "MailboxError"}, 25),
        ({"payload": '{"to": "person7@example.org"}'}, 1),
        ({"where": '$.to like_regex "person[78]@"'}, 2),
        ({"since": "2200-01-01 00:00"}, 0),
        ({"until": "2020-01-01"}, 0),
        ({"since": "2020-01-01T00:00:00+02:00", "category": "TRANSIENT"}, 20),
        ({"which": "redriven"}, 0),
    ):
        text = keeper.get("/queue/dead-letters", queue="mail", **filters).text
        assert text.count("/message?queue=mail&amp;id=") == min(count, 12), filters


def test_causes_leave_out_what_differs_and_lead_to_their_letters(keeper: Person, many: str) -> None:
    text = keeper.get("/queue/dead-letters", queue="mail").text
    assert "no mailbox &lt;number&gt; at &lt;text&gt;" in text
    assert re.search(r'class="example"[^>]*>no mailbox \d+ at ', text)
    with Client(many) as client:
        letters = client.dead_letters.list("mail")
        first, second = causes_of(letters)
        assert (first.count, second.count) == (40, 20)
        for cause in (first, second):
            found = client.dead_letters.list(
                "mail", category=cause.category, error=cause.error_regex, error_class=cause.error_class
            )
            assert len(found) == cause.count


@pytest.mark.parametrize(
    ("error", "pattern"),
    [
        ("", ""),
        ("\n  line 3\nsecond", "line <number>"),
        ("id 0af7651916cd43dd8448eb211c80319c (1.5)", "id <id> (<number>)"),
        (scene.HOSTILE, "<script>alert(<text>)</script>&<b>"),
        ("550 5.1.1 mailbox unavailable", "550 5.1.1 mailbox unavailable"),
        ("(550, b'5.1.1 no user 17')", "(550, b'5.1.1 no user <number>')"),
        ("404 Client Error: Not Found for url 12", "404 Client Error: Not Found for url <number>"),
        ("Client error '404 Not Found' for url 'https://a/1'", "Client error '404 Not Found' for url <text>"),
        ("HTTP 503 after 12 s", "HTTP 503 after <number> s"),
        ("HTTP/1.1 502 Bad Gateway", "HTTP/<number> 502 Bad Gateway"),
        (
            "bank answered with status code: 429, order 429",
            "bank answered with status code: 429, order <number>",
        ),
        ("statusCode=5031", "statusCode=<number>"),
        ("404.25 is not a price", "<number> is not a price"),
        ("777 rows are missing", "<number> rows are missing"),
    ],
)
def test_pattern_of_an_error(error: str, pattern: str) -> None:
    assert pattern_of(error) == pattern


def test_redrive_is_previewed_and_then_done(keeper: Person, many: str) -> None:
    query = "/queue/dead-letters/redrive?queue=mail&category=TRANSIENT"
    preview = keeper.get(query + "&delay=0")
    assert "<strong>20</strong>" in preview.text
    assert rows(many, WAITING) == [(60,)]
    done = keeper.post(query, delay="0")
    assert done.headers["location"] == "/queue/dead-letters?queue=mail&done=redriven&n=20"
    assert "20 dead letters are in the queue again" in keeper.get(done.headers["location"]).text
    assert rows(many, WAITING) == [(40,)]
    assert rows(many, "select count(*) from spanmq.receive('mail', 100)") == [(20,)]


def test_redrive_names_what_stays_beside_another_message(keeper: Person, many: str) -> None:
    with Client(many) as client:
        client.send("mail", "first", priority=9, dedup_id="one", dedup_until="settled")
        [taken] = client.receive("mail", 1)
        client.reject(taken, "timeout after 30 s", category="TRANSIENT")
        other = client.send("mail", "second", dedup_id="one", dedup_until="settled")
        [letter] = client.dead_letters.show("mail", taken.message_id)
    query = "/queue/dead-letters/redrive?queue=mail&category=TRANSIENT"
    preview = keeper.get(query)
    assert "1 would stay" in preview.text
    assert f'id={other}">{other}</a>' in keeper.get(f"{query}&letters={letter.dead_letter_id}").text
    done = keeper.post(query, delay="0")
    assert done.headers["location"].endswith("done=partly&n=20")
    assert "Others stay: another message" in keeper.get(done.headers["location"]).text


PATCH = '[{"op": "add", "path": "/repaired", "value": 1.10}]'


@pytest.mark.parametrize("act", ["redrive", "discard"])
def test_selection_of_nothing_is_not_all(keeper_once: Person, act: str) -> None:
    page = keeper_once.get("/queue/dead-letters", queue="invoices").text
    assert '<input type="hidden" name="selected" value="1">' in page
    refused = keeper_once.get(f"/queue/dead-letters/{act}", queue="invoices", selected="1")
    assert refused.status_code == 400
    assert "Select one dead letter or more." in refused.text


def test_patch_is_previewed_on_bodies_and_then_changes_all(keeper: Person, many: str) -> None:
    query = f"/queue/dead-letters/redrive?queue=mail&category=TRANSIENT&patch={PATCH}"
    preview = keeper.get(query)
    assert "<strong>20</strong>" in preview.text
    assert preview.text.count("repaired&#34;: 1.10") == 10
    assert rows(many, WAITING) == [(60,)]
    assert keeper.post(query, patch=PATCH, delay="0").headers["location"].endswith("done=redriven&n=20")
    taken = rows(many, "select message->>'repaired' from spanmq.receive('mail', 100)")
    assert taken == [("1.10",)] * 20
    too_many = keeper.post(
        f"/queue/dead-letters/redrive?queue=mail&where=$.to&patch={PATCH}", patch=PATCH, limit="9"
    )
    assert too_many.status_code == 422
    assert rows(many, WAITING) == [(40,)]


def test_redrive_puts_back_no_more_than_was_asked_for(keeper: Person, many: str) -> None:
    query = "/queue/dead-letters/redrive?queue=mail"
    assert "<strong>7</strong>" in keeper.get(f"{query}&limit=7").text
    assert keeper.post(query, limit="7").status_code == 303
    assert rows(many, WAITING) == [(53,)]


def test_what_dies_after_the_preview_is_left(keeper: Person, many: str) -> None:
    page = keeper.get("/queue/dead-letters/redrive", queue="mail").text
    action = page.split('<form method="post" action="/queue/dead-letters/redrive?')[1].split('"')[0]
    with Client(many) as client:
        client.send("mail", {"to": "late"})
        client.reject(client.receive("mail"), "late")
    path = "/queue/dead-letters/redrive?" + action.replace("&amp;", "&")
    assert keeper.post(path).headers["location"].endswith("n=60")
    assert rows(many, "select message->>'to' from spanmq.dead_letters('mail')") == [("late",)]


def test_discard_wants_the_name_of_the_queue(keeper: Person, many: str) -> None:
    query = "/queue/dead-letters/discard?queue=mail&category=PERMANENT"
    assert "<strong>40</strong>" in keeper.get(query).text
    refused = keeper.post(query, confirmation="Mail")
    assert refused.status_code == 422
    assert "nothing was deleted" in refused.text
    assert rows(many, WAITING) == [(60,)]
    done = keeper.post(query, confirmation="mail")
    assert done.headers["location"] == "/queue/dead-letters?queue=mail&done=discarded&n=40"
    assert rows(many, WAITING) == [(20,)]


def test_discard_of_those_put_back_leaves_those_that_wait(keeper: Person, many: str) -> None:
    with Client(many) as client:
        client.dead_letters.redrive("mail", category="TRANSIENT")
    query = "/queue/dead-letters/discard?queue=mail&which=redriven"
    assert "<strong>20</strong>" in keeper.get(query).text
    assert keeper.post(query, confirmation="mail").status_code == 303
    assert rows(many, WAITING) == [(40,)]
