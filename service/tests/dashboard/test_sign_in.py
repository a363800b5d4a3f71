"""Signing in and out: what the browser gets, how long it is good, and who can't make one do it."""

from http.cookies import SimpleCookie
from pathlib import Path

import pytest
from service.tests.dashboard.conftest import FORM_TOKEN, Person, rows
from service.tests.running import certificate, service, token
from tests.cli.program import wait_until

from spanmq.client import Client


def test_session_is_a_key_of_its_own_that_no_script_and_no_other_site_gets(
    visitor: Person, tokens: dict[tuple[str, str], str], scene_database: str
) -> None:
    secret = tokens["look", "*"]
    response = visitor.sign_in(secret)
    assert (response.status_code, response.headers["location"]) == (303, "/")
    cookie = SimpleCookie(response.headers["set-cookie"])["spanmq_session"]
    assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "strict", "/")
    assert int(cookie["max-age"]) == 12 * 3600
    assert secret not in str(response.headers)
    assert visitor.get("/").status_code == 200
    found = rows(scene_database, "select s::text from spanmq_core.session s")
    assert not any(cookie.value in row[0] or secret in row[0] for row in found)


def test_secret_itself_is_no_session(visitor: Person, tokens: dict[tuple[str, str], str]) -> None:
    visitor.http.cookies.set("spanmq_session", tokens["look", "*"])
    assert visitor.get("/").status_code == 303


@pytest.mark.parametrize("secret", ["", "spanmq_wrong", "other", "x" * 7_000, "\0", "é"])
def test_wrong_secret_opens_nothing_and_is_not_repeated(visitor: Person, secret: str) -> None:
    response = visitor.sign_in(secret)
    assert response.status_code == 401
    assert "set-cookie" not in response.headers
    assert not secret or secret not in response.text
    assert visitor.get("/").status_code == 303


@pytest.mark.parametrize(
    ("wanted", "there"),
    [
        ("/queue?queue=orders", "/queue?queue=orders"),
        ("//elsewhere.example", "/"),
        ("/\\elsewhere.example", "/"),
        ("https://elsewhere.example", "/"),
        ("/\t/elsewhere.example", "/"),
        ("javascript:alert(1)", "/"),
    ],
)
def test_signing_in_leads_on_within_these_pages_only(
    visitor: Person, tokens: dict[tuple[str, str], str], wanted: str, there: str
) -> None:
    address = str(visitor.http.base_url.copy_with(path="/sign-in", params={"next": wanted}))
    assert visitor.post(address, token=tokens["look", "*"]).headers["location"] == there


def test_session_ends_at_signing_out(looker: Person) -> None:
    key = looker.http.cookies["spanmq_session"]
    assert looker.post("/sign-out", "/").status_code == 303
    assert looker.http.cookies.get("spanmq_session") is None
    looker.http.cookies.set("spanmq_session", key)
    assert looker.get("/").status_code == 303


def test_session_ends_with_its_token(visitor: Person, scene_database: str) -> None:
    visitor.sign_in(token(scene_database, "short", verbs="look"))
    assert visitor.get("/").status_code == 200
    with Client(scene_database) as client:
        client.admin.tokens.revoke("short")
    # The service asks again every two seconds.
    wait_until(lambda: visitor.get("/").status_code == 303)
    left = (
        "select from spanmq_core.session s join spanmq_core.token t using (token_id) where t.name = 'short'"
    )
    assert rows(scene_database, left) == []


def test_form_from_elsewhere_is_refused(visitor: Person, tokens: dict[tuple[str, str], str]) -> None:
    secret = tokens["look", "*"]
    visitor.get("/sign-in")
    # Without the form's token, with that of another browser, and with ours sent from another site.
    assert visitor.http.post("/sign-in", data={"token": secret}).status_code == 403
    assert visitor.http.post("/sign-in", data={"token": secret, "form_token": "0" * 64}).status_code == 403
    for name, value in (
        ("Origin", "https://elsewhere.example"),
        ("Origin", "null"),
        ("Sec-Fetch-Site", "cross-site"),
    ):
        visitor.http.headers[name] = value
        assert visitor.sign_in(secret).status_code == 403
        del visitor.http.headers[name]
    assert visitor.sign_in(secret).status_code == 303


def test_form_of_another_session_is_refused(visitor: Person, tokens: dict[tuple[str, str], str]) -> None:
    visitor.sign_in(tokens["manage", "*"])
    # A neighbour's host may set the mark, but not know the session's key.
    page = visitor.get("/queue/purge", queue="orders").text
    mark = visitor.http.cookies["spanmq_csrf"]
    visitor.http.cookies.clear()
    visitor.http.cookies.set("spanmq_csrf", mark)
    visitor.sign_in(tokens["manage", "*"])
    found = FORM_TOKEN.search(page)
    assert found is not None
    response = visitor.http.post(
        "/queue/purge?queue=orders", data={"form_token": found.group(1), "confirmation": "orders"}
    )
    assert response.status_code == 403


def test_under_tls_cookies_are_sent_by_tls_only(scene_database: str, tmp_path: Path) -> None:
    made, key = certificate(tmp_path)
    options = ("--tls-certificate", str(made), "--tls-key", str(key))
    with (
        service(scene_database, tmp_path, *options, tokens=True) as started,
        started.client(verify=False) as http,
    ):
        person = Person(http)
        secret = token(scene_database, "over tls", verbs="look")
        cookies = person.sign_in(secret).headers["set-cookie"]
        assert cookies.startswith("__Host-spanmq_session=")
        assert "; Secure" in cookies
        assert person.get("/").status_code == 200


def test_visitor_that_hangs_up_within_a_form_is_no_fault(scene_database: str, tmp_path: Path) -> None:
    # Otherwise any client could fill the log, without a token.
    head = "POST /sign-in HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n"
    with service(scene_database, tmp_path, tokens=True) as running, running.client() as http:
        with running.dial() as connection:
            connection.sendall(f"{head}Content-Type: application/x-www-form-urlencoded\r\n\r\n".encode())
        assert http.get("/sign-in").status_code == 200
    # Its end waited for the form.
    assert "page_broke" not in running.log.read_text()
