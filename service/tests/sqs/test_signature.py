"""Who may ask: signatures, keys and their scopes; and the older protocol, which SDKs no longer speak."""

from hashlib import sha256
from typing import Any
from urllib.parse import urlencode
from xml.etree import ElementTree

import httpx
import pytest
from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError
from service.tests.running import Running
from service.tests.sqs.conftest import client_of
from tests.cli.program import records, spanmq
from tests.patience import WAIT_SECONDS

XML = "{http://queue.amazonaws.com/doc/2012-11-05/}"


def signed(
    address: str, key: dict[str, str], body: str, *, path: str = "/", **headers: str
) -> httpx.Response:
    """Ask in the older protocol, signed as its SDKs did."""
    request = AWSRequest("POST", f"{address}{path}", data=body, headers=headers)
    request.headers["Content-Type"] = "application/x-www-form-urlencoded; charset=utf-8"
    credentials = Credentials(key["access_key_id"], key["secret_access_key"])
    SigV4Auth(credentials, "sqs", "eu-central-1").add_auth(request)
    with httpx.Client(trust_env=False, timeout=WAIT_SECONDS) as http:
        return http.post(f"{address}{path}", content=body, headers=dict(request.headers.items()))


def query(
    address: str, key: dict[str, str], action: str, url: str | None = None, **fields: str
) -> ElementTree.Element:
    values = {"Action": action, "Version": "2012-11-05", **fields}
    if url is not None:
        values["QueueUrl"] = url
    answer = signed(address, key, urlencode(values))
    assert answer.headers["content-type"].startswith("text/xml")
    return ElementTree.fromstring(answer.text)


def texts(root: ElementTree.Element, name: str) -> list[str | None]:
    return [each.text for each in root.iter(f"{XML}{name}")]


def test_what_is_not_signed_by_a_key_is_refused(keyed: Running, key: dict[str, str]) -> None:
    body = "Action=ListQueues&Version=2012-11-05"
    assert signed(keyed.address, key, body).status_code == 200
    with httpx.Client(trust_env=False, base_url=keyed.address, timeout=WAIT_SECONDS) as http:
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        assert http.post("/", content=body, headers=kind).status_code == 403
        good = signed(keyed.address, key, body).request.headers
        kept = {k: v for k, v in good.items() if k.lower() not in ("content-length", "connection")}
        # The same signature under another body, another path, another date.
        assert http.post("/", content=body + "&QueueNamePrefix=a", headers=kept).status_code == 403
        assert http.post("/000000000000/q", content=body, headers=kept).status_code == 403
        later = {**kept, "x-amz-date": "20300101T000000Z"}
        assert http.post("/", content=body, headers=later).status_code == 403
        # A hash that was not signed is not taken for the body's.
        told = {**kept, "x-amz-content-sha256": "UNSIGNED-PAYLOAD"}
        assert http.post("/", content=body + "&QueueNamePrefix=a", headers=told).status_code == 403
        bearer = {**kind, "Authorization": "Bearer x"}
        assert http.post("/", content=body, headers=bearer).status_code == 403
    for changed in ({**key, "secret_access_key": "x" * 40}, {**key, "access_key_id": "SPANMQ" + "A" * 14}):
        assert signed(keyed.address, changed, body).status_code == 403
    # What people write where they have no key yet is a key that nobody knows, and not a missing signature.
    stranger = signed(keyed.address, {**key, "access_key_id": "my-key"}, body)
    assert (stranger.status_code, "InvalidClientTokenId" in stranger.text) == (403, True)


def test_signed_hash_must_be_that_of_the_body(keyed: Running, key: dict[str, str]) -> None:
    body = "Action=ListQueues&Version=2012-11-05"
    right = sha256(body.encode()).hexdigest()
    answer = signed(keyed.address, key, body, **{"X-Amz-Content-SHA256": right})
    assert "x-amz-content-sha256" in answer.request.headers["authorization"]
    assert answer.status_code == 200
    for wrong in (sha256(b"").hexdigest(), "UNSIGNED-PAYLOAD"):
        answer = signed(keyed.address, key, body, **{"X-Amz-Content-SHA256": wrong})
        assert (answer.status_code, "is not the body's hash" in answer.text.replace("&apos;", "'")) == (
            403,
            True,
        )


def test_header_that_names_the_action_must_be_signed(keyed: Running, key: dict[str, str]) -> None:
    good = signed(keyed.address, key, "Action=ListQueues&Version=2012-11-05").request.headers
    sent = {k: v for k, v in good.items() if k.lower() not in ("content-length", "connection")}
    with httpx.Client(trust_env=False, base_url=keyed.address, timeout=WAIT_SECONDS) as http:
        body = "Action=ListQueues&Version=2012-11-05"
        assert http.post("/", content=body, headers=sent).status_code == 200
        for name in ("X-Amz-Target", "x-amz-other"):
            changed = http.post("/", content=body, headers={**sent, name: "AmazonSQS.DeleteQueue"})
            assert (changed.status_code, "must be signed" in changed.text) == (403, True)


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("path", ["/", "/000000000000/q"])
def test_presigned_url_is_refused_in_words(
    keyed: Running, key: dict[str, str], path: str, method: str
) -> None:
    credentials = Credentials(key["access_key_id"], key["secret_access_key"])
    url = f"{keyed.address}{path}?Action=ListQueues&Version=2012-11-05"
    request = AWSRequest(method, url)
    SigV4QueryAuth(credentials, "sqs", "eu-central-1").add_auth(request)
    with httpx.Client(trust_env=False, timeout=WAIT_SECONDS) as http:
        answer = http.request(method, str(request.url))
    assert (answer.status_code, "Presigned URLs are not supported" in answer.text) == (403, True)
    assert answer.headers["content-type"].startswith("text/xml")


def test_get_of_a_queue_is_refused_in_words(keyed: Running) -> None:
    with httpx.Client(trust_env=False, base_url=keyed.address, timeout=WAIT_SECONDS) as http:
        answer = http.get("/000000000000/q", params={"Action": "ReceiveMessage"})
    assert (answer.status_code, "Send the request with POST" in answer.text) == (405, True)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_account_of_too_many_digits_does_not_exist(keyed: Running, method: str) -> None:
    with httpx.Client(trust_env=False, base_url=keyed.address, timeout=WAIT_SECONDS) as http:
        assert http.request(method, f"/{'1' * 5_000}/q").status_code == 404


def test_key_is_shown_once_and_ends_once(service_database: str, keyed: Running, make: Any) -> None:
    url = make()
    [made] = records(
        "key create", "-q", url.rpartition("/")[2], "-v", "send", "-v", "look", dsn=service_database
    )
    narrow = client_of(keyed.address, made)
    narrow.send_message(QueueUrl=url, MessageBody="x")
    # A queue that does not exist is like one that the key is not for.
    with pytest.raises(ClientError, match="AccessDeniedException"):
        narrow.send_message(QueueUrl=f"{url}none", MessageBody="x")
    listed = spanmq("key list", "--json", dsn=service_database).out
    assert (made["access_key_id"] in listed, made["secret_access_key"] in listed) == (True, False)
    for existed in (True, False):
        found = records("key revoke", made["access_key_id"], dsn=service_database)
        assert found == [{"access_key_id": made["access_key_id"], "existed": existed}]


def test_secrets_stand_in_no_log(keyed: Running, key: dict[str, str]) -> None:
    signed(keyed.address, key, "Action=Odd")
    assert key["secret_access_key"] not in keyed.log.read_text()
