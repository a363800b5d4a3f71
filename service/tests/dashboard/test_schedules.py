"""The pages of recurring messages."""

from pathlib import Path

import pytest
from service.tests.dashboard.conftest import Person, rows, signed_in
from service.tests.running import token

from spanmq.client import Client

FORM = {
    "name": "nightly",
    "queue": "orders",
    "cron": "0 3 * * *",
    "body": '{"n": 1.10}',
    "time_zone": "Europe/Berlin",
}


@pytest.fixture
def nightly(filled: str) -> str:
    with Client(filled) as client:
        client.schedules.create("nightly", "orders", "0 3 * * *", {"n": 1})
        client.schedules.create("newsletter", "mail", "0 9 * * 1", "hello")
    return filled


def test_schedule_is_made_and_shown(keeper: Person, filled: str) -> None:
    done = keeper.post("/schedules/new", **FORM)
    assert done.headers["location"] == "/schedules?done=made"
    text = keeper.get(done.headers["location"]).text
    assert "0 3 * * *" in text
    assert "Europe/Berlin" in text
    assert "{&#34;n&#34;: 1.10}" in text


def test_schedule_is_paused_resumed_and_ended(keeper: Person, nightly: str) -> None:
    state = "select is_paused from spanmq.list_schedules() where name = 'nightly'"
    for act, is_paused in (("pause", True), ("resume", False)):
        assert keeper.post(f"/schedules/{act}", "/schedules", name="nightly").status_code == 303
        assert rows(nightly, state) == [(is_paused,)]
    assert keeper.post("/schedules/run", "/schedules", name="nightly").status_code == 303
    sent = "select headers ->> 'x-spanmq-schedule' from pgmq.q_orders where headers ? 'x-spanmq-schedule'"
    assert rows(nightly, sent) == [("nightly",)]
    assert "Delete schedule" in keeper.get("/schedules/end", name="nightly").text
    assert keeper.post("/schedules/end?name=nightly", name="nightly").status_code == 303
    assert rows(nightly, "select name from spanmq.list_schedules()") == [("newsletter",)]


@pytest.mark.parametrize("act", ["pause", "resume", "end"])
def test_schedule_that_is_not_there_is_told(keeper_once: Person, act: str) -> None:
    refused = keeper_once.post(f"/schedules/{act}", "/schedules/new", name="none")
    assert refused.status_code == 404


def test_token_touches_schedules_of_its_queues_only(nightly: str, tmp_path: Path) -> None:
    mine = token(nightly, "mine", queues="orders", verbs="look,manage")
    with signed_in(nightly, mine, tmp_path) as someone:
        text = someone.get("/schedules").text
        assert "nightly" in text
        assert "newsletter" not in text
        # To it a schedule of a queue that it may not touch is like one that does not exist, as in the service.
        for act in ("pause", "run", "resume", "end"):
            hidden, none = (
                someone.post(f"/schedules/{act}", "/schedules/new", name=n) for n in ("newsletter", "none")
            )
            assert (hidden.status_code, none.status_code) == (404, 404)
            assert hidden.text.replace("newsletter", "none") == none.text
        taken = someone.post("/schedules/new", **{**FORM, "name": "newsletter"})
        assert taken.status_code == 403
        assert "mail" not in taken.text
        assert someone.post("/schedules/new", **{**FORM, "queue": "mail"}).status_code == 403
    assert rows(nightly, "select name, queue, is_paused from spanmq.list_schedules() order by 1") == [
        ("newsletter", "mail", False),
        ("nightly", "orders", False),
    ]
