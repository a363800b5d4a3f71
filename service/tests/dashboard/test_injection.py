"""Hostile texts in every field of every form, and in every part of every address that pages lead to."""

from collections import defaultdict
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from service.tests.dashboard import scene
from service.tests.dashboard.conftest import FORM_TOKEN, Person
from service.tests.dashboard.test_browser import PAGES as DRAWN
from service.tests.dashboard.test_pages import Reader, read
from service.tests.hostile import HOSTILE, MARKUP, check_canary, place_canary
from service.tests.running import service

from spanmq.client import Client
from spanmq_service.dashboard.app import PAGES

# Where the others are led to from: each page that has no hostile text in its address, and states of its subjects.
FIRST = (
    *(address for address in DRAWN.values() if "%3C" not in address),
    "/queue/messages?queue=orders&find=order&group=customer-1&error=bank&state=failed",
    "/queue?queue=mail",  # which is paused
    "/message?queue=orders&id=41",  # which is delayed
    "/workers/stop?worker=worker-7",
)
Fields = dict[str, str]


def forms_of(page: Reader) -> list[tuple[str, str, Fields]]:
    """Return method, address and fields of each form, with what stands in them."""
    found: list[tuple[str, str, Fields]] = []
    for tag, attributes in page.tags:
        if tag == "form":
            found.append((str(attributes.get("method")).lower(), str(attributes["action"]), {}))
        elif tag in ("input", "textarea", "select") and (name := attributes.get("name")) and found:
            found[-1][2][name] = attributes.get("value") or ""
    return found


def asked_of(someone: Person) -> tuple[dict[str, Fields], dict[str, tuple[str, Fields]]]:
    """Return for each page what its address may hold, and for each form where it goes and its fields."""
    queries: dict[str, Fields] = defaultdict(dict)
    forms: dict[str, tuple[str, Fields]] = {}
    for address in FIRST:
        page = read(someone.http.get(address).text)
        links = [str(each["href"]) for each in page.all("a") if each.get("href")]
        for method, action, fields in forms_of(page):
            if method == "post":
                forms.setdefault(urlsplit(action).path, (action, fields))
            else:
                queries[urlsplit(action).path] |= fields
        for link in (address, *links):
            place = urlsplit(link)
            queries[place.path] |= dict(parse_qsl(place.query, keep_blank_values=True))
    return queries, forms


def test_no_field_becomes_anything_else(filled: str, tmp_path: Path) -> None:
    place_canary(filled)
    with Client(filled) as client:
        client.schedules.create("nightly", "orders", "0 3 * * *", {"n": 1})
        client.schedules.create("paused", "orders", "0 3 * * *", {"n": 1})
        client.schedules.pause("paused")
    scene.report_worker(
        filled,
        "orders",
        "worker-7",
        slots=1,
        held=0,
        breaker={"open_for": 3600, "opening": 1},
        times=[{"kind": "ship", "failed": True, "bucket": 16, "n": 9}],
    )
    with service(filled, tmp_path, "--log-level", "debug") as running, running.client() as http:
        someone = Person(http)
        queries, forms = asked_of(someone)
        known = {page.path for page in PAGES}
        assert known - queries.keys() - forms.keys() == {*("/chart", "/task/chart", "/sign-in", "/sign-out")}
        queries["/task/chart"] = {**queries["/task"], "of": "runs", "shape": "wide"}
        queries["/chart"] = {"of": "rates", "span": "1h", "queue": "orders", "shape": "wide"}
        for path, query in queries.items():
            if path not in known:
                continue
            for name in query:
                for text in HOSTILE:
                    done = http.get(path, params={**query, name: text})
                    check(done.status_code, done.text, (path, name))
        token = FORM_TOKEN.search(someone.get("/queue/send", queue="orders").text)
        assert token is not None
        for path, (action, fields) in forms.items():
            place = urlsplit(action)
            query = dict(parse_qsl(place.query))
            for name in [*fields, *query]:
                for text in HOSTILE:
                    given = {**fields, **({name: text} if name in fields else {})}
                    given |= {} if name == "form_token" else {"form_token": token.group(1)}
                    where = {**query, **({name: text} if name in query else {})}
                    done = http.post(path, params=where, data=given)
                    check(done.status_code, done.text, (path, name))
        for address in FIRST:
            check(http.get(address).status_code, http.get(address).text, address)
        check_canary(filled, running.log)


def check(status: int, text: str, where: object) -> None:
    assert status < 500, (where, text)
    assert MARKUP not in text, where
