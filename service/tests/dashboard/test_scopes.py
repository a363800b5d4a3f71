"""Each page for each scope of a token: a page shows what the token may see, and no other word of it."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from service.tests.dashboard.conftest import FORM_TOKEN, Person, person
from service.tests.running import Running

from spanmq.model import FailingFilters
from spanmq_service.dashboard.app import PAGES
from spanmq_service.dashboard.dead_letters import FILTERS
from spanmq_service.dashboard.page import Page
from spanmq_service.guard.caller import CONTENTS

GUARDED = [page for page in PAGES if page.verb is not None]
IDS = [f"{page.method} {page.path}" for page in GUARDED]
OPEN = {"/sign-in", "/sign-out", "/appearance"}
QUERY = {"id": "1", "of": "rates", "act": "cancel"}


def ask(person: Person, page: Page, queue: str) -> int:
    query = QUERY | ({"queue": queue} if page.of_queue else {})
    # Without the token that our forms have: who may act is told that, and nothing is done.
    fields: dict[str, str] | None = {} if page.method == "POST" else None
    response = person.http.request(page.method, page.path, params=query, data=fields)
    if response.status_code == 403 and "Sent from elsewhere" in response.text:
        return 0
    return response.status_code


def test_only_signing_in_and_out_is_for_everybody() -> None:
    assert {page.path for page in PAGES if page.verb is None} == OPEN


def test_page_that_concerns_one_queue_says_so() -> None:
    several = {page.path for page in GUARDED if not page.of_queue}
    assert several - {
        "/",
        "/chart",
        "/figures",
        "/dead-letters",
        "/policies",
        "/batches",
        "/changes",
        "/search",
        "/workers",
        "/workers/stop",
        "/tasks",
        "/pipeline-runs",
        "/queues/new",
    } == {f"/schedules{act}" for act in ("", "/new", "/pause", "/resume", "/run", "/end")}


@pytest.mark.parametrize("page", GUARDED, ids=IDS)
def test_page_sends_who_has_not_signed_in_to_do_so(visitor: Person, page: Page) -> None:
    response = visitor.http.request(page.method, page.path, params={"queue": "orders"})
    if page.method == "GET":
        assert response.status_code == 303
        assert response.headers["location"].startswith("/sign-in?next=/")
    else:
        assert response.status_code == 401
    live = visitor.http.request(page.method, page.path, headers={"X-Spanmq-Live": "1"})
    assert live.status_code == 401


@pytest.fixture(scope="module")
def holders(guarded: Running, tokens: dict[tuple[str, str], str]) -> Iterator[dict[tuple[str, str], Person]]:
    """Somebody who has signed in with each token."""
    with ExitStack() as opened:
        people = {scope: opened.enter_context(contextmanager(person)(guarded)) for scope in tokens}
        for scope, secret in tokens.items():
            assert people[scope].sign_in(secret).status_code == 303
        yield people


@pytest.mark.parametrize("page", GUARDED, ids=IDS)
def test_page_takes_its_own_scope_only(holders: dict[tuple[str, str], Person], page: Page) -> None:
    for (verb, queues), holder in holders.items():
        for queue in ("orders", "invoices", "missing"):
            is_enough = not page.of_all and (not page.of_queue or queue == "orders")
            is_allowed = verb == page.verb and (queues == "*" or is_enough)
            assert (ask(holder, page, queue) != 403) == is_allowed, (verb, queues, queue)


def test_queue_out_of_scope_cannot_be_told_from_none(
    visitor: Person, tokens: dict[tuple[str, str], str]
) -> None:
    visitor.sign_in(tokens["look", "orders"])
    found, missing = (visitor.get("/queue", queue=name) for name in ("invoices", "nowhere"))
    assert found.status_code == missing.status_code == 403
    assert found.text.replace("invoices", "?") == missing.text.replace("nowhere", "?")


def test_list_and_charts_show_what_the_token_may_look_at(
    visitor: Person, tokens: dict[tuple[str, str], str]
) -> None:
    visitor.sign_in(tokens["look", "orders"])
    for path in ("/", "/dead-letters", "/policies"):
        page = visitor.get(path).text
        assert "queue=orders" in page
        assert "invoices" not in page
        assert "mail" not in page
    assert visitor.get("/chart", of="rates", queue="invoices").status_code == 403
    assert visitor.get("/figures", queue="invoices").status_code == 403

    def figures(**query: str) -> str:
        return visitor.get("/figures", span="6h", **query).text

    # They differ when a step, or a sample, has just ended.
    while (mine := figures()) != (named := figures(queue="")) and figures() != mine:
        pass
    assert mine == named
    visitor.http.cookies.clear()
    visitor.sign_in(tokens["look", "*"])
    assert visitor.get("/figures", span="6h").text != mine


@pytest.mark.parametrize(
    ("path", "shown", "acts"),
    [
        ("/queue", "orders", ("Pause", "Purge", "Drop…", "Send…")),
        ("/queue/dead-letters", "no such customer", ("Redrive", "Discard")),
        ("/queue/policy", "max_attempts", ('<button class="main">',)),
    ],
)
def test_buttons_are_those_of_what_the_token_may_do(
    looker: Person, keeper_once: Person, path: str, shown: str, acts: tuple[str, ...]
) -> None:
    may_look, may_act = (each.get(path, queue="orders").text for each in (looker, keeper_once))
    assert shown in may_look
    for words in acts:
        assert words not in may_look
        assert words in may_act


# The pages of an act on what a choice finds.
CHOOSING = [
    page
    for page in GUARDED
    if page.verb == "manage"
    and page.path.startswith(("/queue/dead-letters/", "/queue/failing/"))
    and not page.path.endswith("/repair")
]


@pytest.mark.parametrize("name", CONTENTS)
@pytest.mark.parametrize("page", CHOOSING, ids=[f"{page.method} {page.path}" for page in CHOOSING])
def test_choice_by_contents_is_refused_without_look(
    holders: dict[tuple[str, str], Person], page: Page, name: str
) -> None:
    """As over HTTP: how many match shows what is in them."""
    is_filter = name in (FILTERS if "dead-letters" in page.path else FailingFilters.__annotations__)
    given = {"payload": '{"a": 1}', "where": '$ ? (@.card starts with "4")', "category": "PERMANENT"}.get(
        name, "x"
    )
    holder = holders["manage", "orders"]
    address = "/queue/dead-letters/discard?queue=orders"
    found = FORM_TOKEN.search(holder.get(address).text)
    assert found is not None
    fields = {"form_token": found[1], "confirmation": "orders"}
    if page.method == "GET" or is_filter:
        query = {"queue": "orders", name: given}
        response = holder.http.request(page.method, page.path, params=query, data=fields)
        assert (response.status_code == 403) is is_filter, response.text
        assert not is_filter or "may not look" in response.text


def test_preview_of_a_patch_shows_bodies_only_with_look(holders: dict[tuple[str, str], Person]) -> None:
    path = "/queue/dead-letters/redrive"
    query = {"queue": "orders", "patch": '[{"op": "test", "path": "", "value": 1}]'}
    assert holders["manage", "orders"].get(path, queue="orders").status_code == 200
    assert holders["manage", "orders"].http.get(path, params=query).status_code == 403
