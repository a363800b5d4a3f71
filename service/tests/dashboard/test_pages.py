"""What pages show, how they are written, and what stands around them."""

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from service.tests.dashboard import scene
from service.tests.dashboard.conftest import Person, rows
from service.tests.running import service
from tests.cli.program import do

from spanmq_service.dashboard.app import PAGES
from spanmq_service.dashboard.figures import SPANS, spans_for

QUEUES = ("orders", "invoices", "mail", "empty", "Reports 2030", scene.HOSTILE_QUEUE)
SHOWN = [
    ("/", {}),
    ("/", {"order": "dead", "find": scene.HOSTILE}),
    ("/figures", {"span": "3d"}),
    *((path, {}) for path in ("/dead-letters", "/policies", "/schedules", "/schedules/new")),
    ("/batches", {}),
    ("/workers", {}),
    ("/appearance", {}),
    ("/queues/new", {}),
    ("/tasks", {"span": "1d"}),
    ("/pipeline-runs", {}),
    *(("/queue", {"queue": queue}) for queue in QUEUES),
    ("/queue", {"queue": "orders", "span": "1d"}),
    ("/queue/messages", {"queue": "orders", "after": "20"}),
    ("/queue/messages", {"queue": scene.HOSTILE_QUEUE, "find": scene.HOSTILE, "error": scene.HOSTILE}),
    ("/queue/messages/selected", {"queue": scene.HOSTILE_QUEUE, "act": "retry", "id": "1"}),
    ("/figures", {"queue": scene.HOSTILE_QUEUE}),
    *(("/message", {"queue": scene.HOSTILE_QUEUE, "id": str(each)}) for each in (1, 2, 99)),
    *(("/message", {"queue": "invoices", "id": str(each)}) for each in (1, 3, 40)),
]
OF_QUEUES = (
    "/queue/purge",
    "/queue/drop",
    "/queue/messages",
    "/queue/failing",
    "/queue/receivers",
    "/queue/groups",
    "/queue/storage",
    "/queue/changes",
    "/queue/send",
    "/queue/policy",
    "/queue/dead-letters",
    "/queue/dead-letters/redrive",
    "/queue/dead-letters/discard",
    "/queue/pipeline-runs",
)
EDITED = [(path, {"queue": queue}) for path in OF_QUEUES for queue in QUEUES]


class Reader(HTMLParser):
    """Reads a page as a browser would, and notes what a person needs."""

    VOID = frozenset({"meta", "link", "input", "img", "source", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def all(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.tags if tag == name]


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader


@pytest.mark.parametrize(("path", "query"), [*SHOWN, *EDITED])
def test_page_is_whole_and_for_everybody_and_no_other_s_markup(
    keeper_once: Person, path: str, query: dict[str, str]
) -> None:
    response = keeper_once.get(path, **query)
    assert response.status_code == 200
    # Nothing that was sent becomes markup.
    assert "<script>alert" not in response.text
    assert "<img src=x" not in response.text
    page = read(response.text)
    for script in page.all("script"):
        assert re.fullmatch(r"/assets/live\.js\?v=[0-9a-f]{12}", str(script["src"]))
    [html], [main] = page.all("html"), page.all("main")
    assert (html["lang"], main["id"]) == ("en", "main")
    assert page.all("a")[0]["href"] == "#main"  # before all else, for who uses a keyboard
    assert len(page.all("h1")) == 1
    assert [tag for tag, _ in page.tags].count("table") == [tag for tag, _ in page.tags].count("caption")
    labels = {label["for"] for label in page.all("label")}
    for field in [*page.all("input"), *page.all("textarea")]:
        assert field.get("type") == "hidden" or field.get("aria-label") or field["id"] in labels
    for image in page.all("img"):
        assert image["alt"]
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in page.tags:
        assert attributes.get("aria-labelledby", ids[0]) in ids
        assert "data-live" not in attributes or "id" in attributes
        # Nothing that the policy of contents would refuse.
        assert "style" not in attributes
        assert not [name for name in attributes if name.startswith("on")]


@pytest.mark.parametrize("message_id", [1, 2])
def test_hostile_texts_are_shown_as_they_were_sent(keeper_once: Person, message_id: int) -> None:
    text = keeper_once.get("/message", queue=scene.HOSTILE_QUEUE, id=message_id).text
    assert "&lt;script&gt;alert(&#34;x&#34;)&lt;/script&gt;&amp;&lt;b&gt;" in text


@pytest.mark.parametrize(
    ("path", "query"), [("/", {}), ("/nowhere", {}), ("/queue", {"queue": "none"}), ("/queue", {})]
)
def test_every_page_is_guarded_by_headers(looker: Person, path: str, query: dict[str, str]) -> None:
    headers = looker.get(path, **query).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
    assert {policy[name] for name in ("script-src", "style-src", "form-action", "connect-src")} == {"'self'"}
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "same-origin"


def test_picture_runs_nothing(looker: Person) -> None:
    for of in ("rates", "levels", "age"):
        for shape in ("wide", "narrow"):
            response = looker.get("/chart", of=of, shape=shape, span="6h", queue="orders")
            assert response.headers["content-type"].startswith("image/svg+xml")
            assert "script-src" not in response.headers["content-security-policy"]
            assert "default-src 'none'" in response.headers["content-security-policy"]
            assert "<script" not in response.text
            # Nothing is fetched from anywhere: what looks like an address are names of namespaces.
            assert set(re.findall(r"(?:href|src|url)\W", response.text)) == set()


def test_time_before_a_queue_existed_is_drawn_as_a_gap(keeper: Person, filled: str) -> None:
    def lines() -> int:
        return keeper.get("/chart", of="levels", queue="empty").text.count('class="line')

    # The scene may be as old as the test run. A queue of the future has no time at all behind it.
    for created, expected in (("+ interval '30 minutes'", 0), ("- interval '30 minutes'", 2)):
        do(
            filled,
            f"update spanmq_core.queue set created_at = clock_timestamp() {created} where name = 'empty'",
        )
        assert lines() == expected


def test_open_breaker_and_pause_are_shown(keeper: Person, filled: str) -> None:
    do(
        filled,
        (
            "select spanmq.report_worker('{empty}', 'w', 1, 1,"
            """ '{"empty": {"breaker": {"open_for": 600, "opening": 1}}}')"""
        ),
        "select spanmq.pause('empty')",
    )
    for path, query in (("/", {}), ("/queue", {"queue": "empty"})):
        shown = set(re.findall(r'class="badge (?:warn|bad)"[^>]*>([^<]*)<', keeper.get(path, **query).text))
        assert {"paused", "breaker open"} <= shown, path
    [counted] = [each for each in keeper.get("/v1/count").json()["queues"] if each["queue"] == "empty"]
    assert (counted["is_paused"], counted["breaker_open_until"] is not None) == (True, True)


def test_message_is_shown_with_why_it_is_not_delivered(keeper: Person, filled: str) -> None:
    [(message_id,)] = rows(filled, "select min(msg_id) from spanmq.peek('mail', 1)")
    page = keeper.get("/message", queue="mail", id=message_id).text
    assert "The queue is paused" in page


def test_many_queues_are_added_up_over_a_short_time_only() -> None:
    assert [each.name for each in spans_for(1)] == [each.name for each in SPANS]
    assert [each.name for each in spans_for(9)] == ["1h", "6h", "1d", "3d"]
    assert [each.name for each in spans_for(111)] == ["1h", "6h"]
    assert [each.name for each in spans_for(200)] == [each.name for each in spans_for(10_000)] == ["1h"]


def test_assets_are_kept_for_ever_under_their_version(visitor: Person) -> None:
    for address in re.findall(r'"(/assets/[^"]*)"', visitor.get("/sign-in").text):
        response = visitor.get(address)
        assert response.status_code == 200
        assert "immutable" in response.headers["cache-control"]
        assert visitor.get(address.partition("?")[0]).headers["cache-control"] == "no-cache"
    for name in ("app.py", "..%2Fapp.py", "%2Fetc%2Fpasswd", ""):
        assert visitor.get(f"/assets/{name}").status_code == 404


@pytest.mark.parametrize(
    ("path", "query", "status"),
    [
        ("/", {"order": "size"}, 400),
        ("/", {"span": "9y"}, 400),
        ("/queue", {}, 400),
        ("/queue", {"queue": "none"}, 404),
        ("/queue", {"queue": "no;ne"}, 404),
        ("/queue", {"queue": "x" * 500}, 404),
        ("/queue", {"queue": "\0"}, 404),
        ("/queue", {"queue": "orders", "span": "9y"}, 400),
        ("/queue/messages", {"queue": "orders", "after": "9" * 19}, 400),
        ("/queue/messages", {"queue": "orders", "after": "-1"}, 400),
        ("/queue/messages", {"queue": "orders", "state": "none"}, 400),
        ("/message", {"queue": "orders"}, 400),
        ("/message", {"queue": "orders", "id": "one"}, 400),
        ("/chart", {"of": "none"}, 400),
        ("/queue/messages/selected", {"queue": "orders", "act": "none", "id": "1"}, 400),
        ("/queue/messages/selected", {"queue": "orders", "act": "cancel", "id": "x"}, 400),
        ("/queue/messages/selected", {"queue": "orders", "act": "cancel", "id": ["1"] * 101}, 400),
        ("/queue/dead-letters/repair", {"queue": "invoices", "id": "250"}, 404),
        ("/queue/dead-letters/repair", {"queue": "invoices"}, 404),
        ("/queue/dead-letters/repair", {"queue": "none", "id": "1"}, 404),
        ("/workers", {"order": "none"}, 400),
        ("/nope", {}, 404),
        ("/queue/nope", {"queue": "orders"}, 404),
    ],
)
def test_bad_address_is_told_on_a_page(
    keeper_once: Person, path: str, query: dict[str, Any], status: int
) -> None:
    response = keeper_once.get(path, **query)
    assert response.status_code == status
    assert "<h1>" in response.text


def test_routes_of_the_service_answer_as_without_pages(keeper_once: Person) -> None:
    http = keeper_once.http
    assert http.get("/sign-in").headers["location"] == "/"
    assert http.get("/nope", headers={"accept": "*/*"}).json()["error"]["code"] == "not_found"
    assert http.get("/v1/queues/orders/purge").json()["error"]["code"] == "method_not_allowed"
    assert http.get("/v1/none").json()["error"]["code"] == "not_found"
    assert http.delete("/v1/health").json()["error"]["code"] == "method_not_allowed"
    assert http.post("/", headers={"x-amz-target": "AmazonSQS.ListQueues"}, content="{}").status_code == 200


def test_pages_can_be_left_out(filled: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("bare")
    with service(filled, folder, dashboard=False) as started, started.client() as http:
        assert http.get("/v1/queues").status_code == 200
        assert {http.get(page.path).status_code for page in PAGES} <= {404, 405}


def test_queue_is_counted_exactly_while_it_is_small(keeper: Person, filled: str) -> None:
    def cells(queue: str) -> list[str]:
        found = re.split(r"</?tr[^>]*>", keeper.get("/").text.partition('id="rows"')[2])
        [row] = [each for each in found if f">{queue}</a>" in each]
        return [re.sub(r"<[^>]*>", "", cell).strip() for cell in re.findall(r"<td.*?</td>", row)]

    assert cells("empty")[1] == "0"
    do(filled, "select pgmq.send_batch('empty', array_fill('1'::jsonb, array[7]))")
    assert cells("empty")[1:3] == ["7", "0"]
    do(filled, "select spanmq.receive('empty', 3, 600)")
    assert cells("empty")[1:3] == ["7", "3"]
    # More than two hundred runs: as it was sampled last, which is two thirds of an hour's wave above 40,000.
    assert cells("orders")[1].startswith("≈ 6")


def test_tabs_of_a_queue_show_its_groups_and_leases(keeper_once: Person) -> None:
    page = keeper_once.get("/queue/groups", queue="orders").text
    pattern = r'"name">(customer-\w+)</span>.*?<span class="badge[^>]*>([^<]+)</span>'
    states = dict(re.findall(pattern, page, re.DOTALL))
    assert states["customer-later"] == "delayed"
    assert sorted(states.values()) == ["dead letter", "delayed", *["free"] * 5, "leased", "retrying"]
    invoices = keeper_once.get("/queue/receivers", queue="invoices").text
    assert re.search(r'data-label="Messages">20<', invoices)


def test_story_of_a_message_is_told(keeper_once: Person) -> None:
    dead = keeper_once.get("/message", queue="invoices", id=1).text
    for words in (">dead<", "Attempt 1", "Attempt 2", "timeout after 30 s", scene.TRACEBACK, "TRANSIENT"):
        assert words in dead
    assert "{\n  &#34;invoice&#34;: 0\n}" in dead
    waiting = keeper_once.get("/message", queue="orders", id=1).text
    assert "connection refused by the bank" in waiting
    assert ">failing<" in waiting
    assert "unknown" in keeper_once.get("/message", queue="orders", id=10**18).text


def test_body_is_shown_to_the_last_digit(keeper: Person, filled: str) -> None:
    do(filled, """select pgmq.send('empty', '{"exact": 1.10, "large": 12345678901234567890.123}')""")
    text = keeper.get("/message", queue="empty", id=1).text
    assert "1.10" in text
    assert "12345678901234567890.123" in text


def test_page_says_when_the_database_is_away(keeper: Person, filled: str) -> None:
    do(filled, "alter function spanmq.latest_statistics rename to gone")
    response = keeper.get("/")
    assert response.status_code >= 500
    assert "<h1>" in response.text
    assert "latest_statistics" not in response.text


def test_policy_shows_what_differs_from_the_defaults(keeper_once: Person) -> None:
    page = keeper_once.get("/queue/policy", queue="orders").text
    shown = re.findall(r"<code>(\w+)</code></th>\s*<td[^>]*>([^<]*)</td>\s*<td[^>]*>([^<]*)<", page)
    assert shown == [
        ("max_attempts", "2", "25"),
        ("ordered", "true", "false"),
        ("dead_letter_blocks_group", "true", "false"),
    ]
    assert "All settings have their defaults." in keeper_once.get("/queue/policy", queue="empty").text


def test_policy_page_shows_the_schema_of_the_bodies(keeper_once: Person) -> None:
    page = keeper_once.get("/queue/policy", queue=scene.HOSTILE_QUEUE).text
    assert "The JSON Schema of the bodies, which sends are not checked against." in page
    assert "&#34;type&#34;: &#34;object&#34;" in page
    assert "JSON Schema" not in keeper_once.get("/queue/policy", queue="orders").text
