"""What people do to a queue, and what their forms refuse."""

import pytest
from service.tests.dashboard import scene
from service.tests.dashboard.conftest import FORM_TOKEN, Person, rows

from spanmq_service.dashboard.app import PAGES

STATE = "select (pgmq.metrics('orders')).total_messages, spanmq.get_policy('orders')::text"


def test_queue_is_paused_and_resumed(keeper: Person, filled: str) -> None:
    done = keeper.post("/queue/pause?queue=orders", "/queue?queue=orders")
    assert done.headers["location"] == "/queue?queue=orders&done=paused"
    assert "receivers get nothing" in keeper.get(done.headers["location"]).text
    assert rows(filled, "select count(*) from spanmq.receive('orders', 10)") == [(0,)]
    assert keeper.post("/queue/resume?queue=orders", "/queue?queue=orders").status_code == 303
    assert rows(filled, "select count(*) > 0 from spanmq.receive('orders', 10)") == [(True,)]


def test_breaker_is_closed(keeper: Person, filled: str) -> None:
    assert "Close breaker" not in keeper.get("/queue?queue=orders").text
    scene.report_worker(filled, "orders", "worker-7", slots=1, held=0, breaker={"open_for": 60, "opening": 1})
    assert "Close breaker" in keeper.get("/queue?queue=orders").text
    done = keeper.post("/queue/close-breaker?queue=orders", "/queue?queue=orders")
    assert done.headers["location"] == "/queue?queue=orders&done=closed&n=1"
    assert "of 1 workers: they receive again" in keeper.get(done.headers["location"]).text
    assert "Close breaker" not in keeper.get("/queue?queue=orders").text
    assert ">close_breaker</code>" in keeper.get("/changes?queue=orders").text


def test_message_is_delivered_now_unless_a_receiver_holds_it(keeper: Person, filled: str) -> None:
    [(delayed,)] = rows(filled, "select msg_id from pgmq.q_orders where message->>'order' = '99'")
    [(held,)] = rows(filled, "select msg_id from spanmq.receive('invoices', 1)")
    for queue, message_id, done in (
        ("orders", delayed, "shown"),
        ("orders", delayed, "late"),
        ("invoices", held, "late"),
    ):
        place = f"queue={queue}&id={message_id}"
        answer = keeper.post(f"/message/deliver?{place}", "/queue/send?queue=orders")
        assert answer.headers["location"] == f"/message?{place}&done={done}"
        assert 'class="notice"' in keeper.get(answer.headers["location"]).text


def test_message_is_cancelled_from_its_page_after_a_preview(keeper: Person, filled: str) -> None:
    [(held,)] = rows(filled, "select msg_id from spanmq.receive('invoices', 1)")
    for queue, message_id in (("orders", 1), ("invoices", held)):
        preview = f"/queue/messages/selected?queue={queue}&act=cancel&id={message_id}"
        page = keeper.get(f"/message?queue={queue}&id={message_id}").text
        assert f'href="{preview.replace("&", "&amp;")}">Cancel message…<' in page
        assert "<strong>1</strong> of 1" in keeper.get(preview).text
        keeper.post(f"/queue/messages/selected?queue={queue}", preview, act="cancel", ids=str(message_id))
    assert rows(filled, f"select spanmq.state('orders', 1), spanmq.state('invoices', {held})") == [
        ("cancelled", "processing")
    ]


@pytest.mark.parametrize("typed", ["", "Orders", "orders2", "invoices"])
def test_purge_wants_the_name_of_the_queue(keeper_once: Person, keeper_database: str, typed: str) -> None:
    refused = keeper_once.post("/queue/purge?queue=orders", confirmation=typed)
    assert refused.status_code == 422
    assert "nothing was removed" in refused.text
    assert rows(keeper_database, "select (pgmq.metrics('orders')).queue_length") == [(40,)]


def test_purge_removes_all_and_says_how_many(keeper: Person, filled: str) -> None:
    done = keeper.post("/queue/purge?queue=orders", confirmation="orders")
    assert done.headers["location"] == "/queue?queue=orders&done=purged&n=40"
    assert "40 messages were removed" in keeper.get(done.headers["location"]).text
    assert rows(filled, "select (pgmq.metrics('orders')).queue_length") == [(0,)]


def test_message_is_sent_as_it_was_typed(keeper: Person, filled: str) -> None:
    done = keeper.post(
        "/queue/send?queue=empty", body='{"price": 1.10}', headers='{"a": 1}', group="one", delay="60"
    )
    assert done.headers["location"] == "/message?queue=empty&id=1"
    assert "delayed" in keeper.get(done.headers["location"]).text
    found = rows(filled, "select message::text, headers->>'x-pgmq-group', headers->>'a' from pgmq.q_empty")
    assert found == [('{"price": 1.10}', "one", "1")]


def test_numbers_of_any_length_are_sent_and_shown(keeper: Person, filled: str) -> None:
    digits = "1" + "0" * 5000
    assert keeper.post("/queue/send?queue=empty", body=f"[{digits}]").status_code == 303
    rows(filled, """select pgmq.send('empty', '2', headers => '{"n": 1e5000}')""")
    for message_id in (1, 2):
        page = keeper.get("/message", queue="empty", id=message_id)
        assert (page.status_code, digits in page.text) == (200, True)


@pytest.mark.parametrize("path", [page.path for page in PAGES if page.method == "POST"])
@pytest.mark.parametrize("kind", ["none", "wrong", "json", "elsewhere"])
def test_form_that_is_not_ours_does_nothing(
    keeper_once: Person, keeper_database: str, path: str, kind: str
) -> None:
    http = keeper_once.http
    http.get("/")
    fields = {"confirmation": "orders", "body": "1"}
    before = rows(keeper_database, STATE)
    if kind == "json":
        response = http.post(f"{path}?queue=orders", json=fields)
    elif kind == "elsewhere":
        page = http.get("/queue/purge?queue=orders").text
        found = FORM_TOKEN.search(page)
        assert found is not None
        given = {**fields, "form_token": found.group(1)}
        response = http.post(
            f"{path}?queue=orders", data=given, headers={"Origin": "http://elsewhere.example"}
        )
    else:
        given = fields if kind == "none" else {**fields, "form_token": "f" * 64}
        response = http.post(f"{path}?queue=orders", data=given)
    assert response.status_code in (403, 415)
    assert rows(keeper_database, STATE) == before


def test_who_may_send_but_not_look_sees_the_number_only(
    visitor: Person, tokens: dict[tuple[str, str], str]
) -> None:
    visitor.sign_in(tokens["send", "*"])
    done = visitor.post("/queue/send?queue=empty", body="1", delay="3000000")
    assert done.status_code == 200
    assert "The message has the id" in done.text


def test_dead_message_is_redriven_or_discarded_from_its_page_after_a_preview(
    keeper: Person, filled: str
) -> None:
    rows(filled, "select pgmq.send_batch('empty', array['1', '2']::jsonb[])")
    rows(
        filled,
        "select spanmq.reject('empty', max(lease_id), array_agg(msg_id), 'no') from spanmq.receive('empty', 9)",
    )
    letters = dict(rows(filled, "select msg_id, dead_letter_id from spanmq.dead_letters('empty')"))
    for act, message_id, typed in (("redrive", 1, {}), ("discard", 2, {"confirmation": "empty"})):
        path = f"/queue/dead-letters/{act}?queue=empty&letters={letters[message_id]}"
        assert path.replace("&", "&amp;") in keeper.get(f"/message?queue=empty&id={message_id}").text
        assert "<strong>1</strong> dead letter" in keeper.get(path).text
        assert f"done={act}" in keeper.post(path, path, **typed).headers["location"]
    assert rows(filled, "select msg_id from pgmq.q_empty") == [(1,)]
    assert rows(filled, "select msg_id from spanmq.dead_letters('empty', redriven => null)") == [(1,)]


def test_a_red_button_that_acts_at_once_is_on_no_page_but_a_preview(keeper: Person, filled: str) -> None:
    rows(
        filled,
        "select spanmq.reject('invoices', lease_id, array[msg_id], 'no') from spanmq.receive('invoices', 1)",
    )
    for path in ("/message?queue=invoices&id=1", "/message?queue=orders&id=1", "/queue?queue=orders"):
        assert '<button class="danger"' not in keeper.get(path).text, path
