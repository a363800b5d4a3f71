"""Repairing a dead letter: the body is changed, the message stays the same one."""

import html
import re
from pathlib import Path

from service.tests.dashboard.conftest import Person, rows, signed_in
from service.tests.running import service, token

from spanmq.client import Client
from spanmq.codec.encryption import Encryption, new_line, read_keys

PAGE = "/queue/dead-letters/repair?queue=invoices&id=1"
AREA = re.compile(r"<textarea[^>]*>\n(.*?)</textarea>", re.DOTALL)
STATE = "select message::text, read_ct from pgmq.q_invoices where msg_id = 1"


def body_on(page: str) -> str:
    found = AREA.search(page)
    assert found is not None
    return html.unescape(found.group(1))


def test_letter_is_repaired_and_is_the_same_message(keeper: Person, filled: str) -> None:
    story = keeper.get("/message", queue="invoices", id=1).text
    assert "/queue/dead-letters/repair?queue=invoices&amp;id=1" in story
    assert body_on(keeper.get(PAGE).text) == '{\n  "invoice": 0\n}'
    rows(filled, "select spanmq.set_policy('invoices', '{\"redrive_delay\": 1000000}')")
    done = keeper.post(PAGE, body='{"invoice": 1.10}')
    assert done.headers["location"] == "/message?queue=invoices&id=1"
    assert rows(filled, STATE) == [('{"invoice": 1.10}', 0)]
    # Without a delay it is the policy's.
    assert rows(filled, "select vt > clock_timestamp() from pgmq.q_invoices where msg_id = 1") == [(True,)]
    assert "repair" not in keeper.get("/message", queue="invoices", id=1).text
    again = keeper.post(PAGE, "/queue/send?queue=invoices", body="2")
    assert again.status_code == 404


def test_body_that_was_not_touched_stays(keeper: Person, filled: str) -> None:
    # As a browser sends it.
    shown = body_on(keeper.get(PAGE).text).replace("\n", "\r\n")
    assert keeper.post(PAGE, body=shown).status_code == 303
    assert rows(filled, STATE) == [('{"invoice": 0}', 0)]


def test_sealed_body_that_was_not_touched_is_not_sealed_again(filled: str, tmp_path: Path) -> None:
    line = new_line("first")
    sealing = Encryption(read_keys(line, "the test's"))
    with Client(filled, encryption=sealing) as client:
        client.send("empty", {"secret": 1})
        client.reject(client.receive("empty"), "no")
    [(sealed,)] = rows(filled, "select message::text from spanmq.dead_letters_of('empty', 1)")
    assert "spanmq.sealed" in sealed
    page = "/queue/dead-letters/repair?queue=empty&id=1"
    with (
        service(filled, tmp_path, more={"SPANMQ_ENCRYPTION_KEYS": line}) as running,
        running.client() as http,
    ):
        shown = body_on(Person(http).get(page).text)
        assert shown == '{"secret":1}'
        assert Person(http).post(page, body=shown).status_code == 303
    assert rows(filled, "select message::text from pgmq.q_empty where msg_id = 1") == [(sealed,)]


def test_body_that_is_too_long_for_a_form_is_refused(keeper: Person, filled: str) -> None:
    rows(filled, "select pgmq.send('empty', to_jsonb(repeat('x', 200000)))")
    rows(filled, "select spanmq.reject('empty', lease_id, array[msg_id]) from spanmq.receive('empty')")
    assert keeper.get("/queue/dead-letters/repair?queue=empty&id=1").status_code == 413


def test_who_may_not_look_sees_no_body(filled: str, tmp_path: Path) -> None:
    secret = token(filled, "blind", queues="invoices", verbs="manage")
    with signed_in(filled, secret, tmp_path) as someone:
        page = someone.get(PAGE).text
        assert body_on(page) == ""
        assert "invoice&" not in page
        done = someone.post(PAGE, body="3", delay="0")
        assert done.headers["location"] == "/queue/dead-letters/redrive?queue=invoices"
    assert rows(filled, STATE) == [("3", 0)]
