"""What people do to a queue, and what their forms refuse."""

import pytest
from tests.dashboard.conftest import FORM_TOKEN, Person, rows

from spanmq.dashboard.app import PAGES

STATE = "select (pgmq.metrics('orders')).total_messages, spanmq.get_policy('orders')::text"


def test_queue_is_paused_and_resumed(keeper: Person, filled: str) -> None:
    done = keeper.post("/queue/pause?queue=orders", "/queue?queue=orders")
    assert done.headers["location"] == "/queue?queue=orders&done=paused"
    assert "receivers get nothing" in keeper.get(done.headers["location"]).text
    assert rows(filled, "select count(*) from spanmq.receive('orders', 10)") == [(0,)]
    assert keeper.post("/queue/resume?queue=orders", "/queue?queue=orders").status_code == 303
    assert rows(filled, "select count(*) > 0 from spanmq.receive('orders', 10)") == [(True,)]


def test_message_is_delivered_now_or_cancelled_unless_a_receiver_holds_it(
    keeper: Person, filled: str
) -> None:
    [(delayed,)] = rows(filled, "select msg_id from pgmq.q_orders where message->>'order' = '99'")
    [(held,)] = rows(filled, "select msg_id from spanmq.receive('invoices', 1)")
    for act, queue, message_id, done in (
        ("deliver", "orders", delayed, "shown"),
        ("cancel", "orders", delayed, "cancelled"),
        ("deliver", "orders", delayed, "late"),
        ("deliver", "invoices", held, "late"),
        ("cancel", "invoices", held, "cancelling"),
    ):
        place = f"queue={queue}&id={message_id}"
        answer = keeper.post(f"/message/{act}?{place}", "/queue/send?queue=orders")
        assert answer.headers["location"] == f"/message?{place}&done={done}"
        assert 'class="notice"' in keeper.get(answer.headers["location"]).text
    assert rows(filled, f"select spanmq.state('orders', {delayed}), spanmq.state('invoices', {held})") == [
        ("unknown", "processing")
    ]
    assert ">Cancel message<" in keeper.get("/message", queue="mail", id=1).text


@pytest.mark.parametrize("typed", ["", "Orders", "orders2", "invoices"])
def test_purge_wants_the_name_of_the_queue(keeper: Person, filled: str, typed: str) -> None:
    refused = keeper.post("/queue/purge?queue=orders", confirmation=typed)
    assert refused.status_code == 422
    assert "nothing was removed" in refused.text
    assert rows(filled, "select (pgmq.metrics('orders')).queue_length") == [(40,)]


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


@pytest.mark.parametrize(
    "fields",
    [
        {"body": ""},
        {"body": "{"},
        {"body": "NaN"},
        {"body": "[" * 100_000},
        {"body": '"\\u0000"'},
        {"body": "1", "headers": "[]"},
        {"body": "1", "headers": "{"},
        {"body": "1", "delay": "soon"},
        {"body": "1", "delay": "-1"},
        {"body": "1", "delay": "nan"},
        {"body": "1", "headers": '{"x-pgmq-group": "a"}', "group": "b"},
    ],
)
def test_message_that_is_none_is_told_and_not_sent(
    keeper_once: Person, keeper_database: str, fields: dict[str, str]
) -> None:
    response = keeper_once.post("/queue/send?queue=empty", **fields)
    assert response.status_code in (400, 422)
    assert 'role="alert"' in response.text or "<h1>" in response.text
    assert rows(keeper_database, "select (pgmq.metrics('empty')).total_messages") == [(0,)]


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


def test_dead_message_is_redriven_or_discarded_on_its_page(keeper: Person, filled: str) -> None:
    rows(filled, "select pgmq.send_batch('empty', array['1', '2']::jsonb[])")
    rows(
        filled,
        "select spanmq.reject('empty', max(lease_id), array_agg(msg_id), 'no') from spanmq.receive('empty', 9)",
    )
    [(letter,)] = rows(filled, "select dead_letter_id from spanmq.dead_letters('empty') where msg_id = 2")
    for act, message_id, more in (("redrive", 1, ""), ("discard", 2, f"&letter={letter}")):
        page = f"/message?queue=empty&id={message_id}"
        path = f"/message/{act}?queue=empty&id={message_id}{more}"
        assert path.replace("&", "&amp;") in keeper.get(page).text
        done = {"redrive": "redriven", "discard": "discarded"}[act]
        assert keeper.post(path, page).headers["location"] == f"{page}&done={done}"
        again = keeper.post(path, "/queue/send?queue=empty")
        assert again.headers["location"] == f"{page}&done=late"
    assert rows(filled, "select msg_id from pgmq.q_empty") == [(1,)]
    assert rows(filled, "select count(*) from spanmq.dead_letters('empty')") == [(0,)]
