"""Signatures, secrets, addresses and headers, without a queue."""

import base64
import ipaddress
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.push.sent import message

from spanmq.errors import InvalidArgumentError
from spanmq.push import Endpoint
from spanmq.push.addresses import Guard, is_public
from spanmq.push.endpoint import EndpointsFile
from spanmq.push.worker import retry_after, webhook_id

HMAC = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def test_signatures_are_those_of_the_specification() -> None:
    # The vector of the specification's libraries.
    body = b'{"test": 2432232314}'
    headers = Endpoint("https://a.example/", HMAC).headers("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    private = Ed25519PrivateKey.generate()
    seed, public = private.private_bytes_raw(), private.public_key()
    for raw in (seed, seed + public.public_bytes_raw()):
        secret = "whsk_" + base64.b64encode(raw).decode()
        both = Endpoint("https://a.example/", [HMAC, secret]).headers("m", 17, body)["webhook-signature"]
        first, second = both.split(" ")
        assert (first[:3], second[:4]) == ("v1,", "v1a,")
        public.verify(base64.b64decode(second[4:]), b"m.17." + body)
        with pytest.raises(InvalidSignature):
            public.verify(base64.b64decode(second[4:]), b"m.18." + body)
    assert "webhook-signature" not in Endpoint("https://a.example/").headers("m", 17, body)


@pytest.mark.parametrize(
    ("secret", "reason"),
    [
        ("hunter2hunter2hunter2hunter2", "begins with whsec_"),
        ("whsec_hunter!", "not Base64"),
        ("whsec_aHVudGVyMg==", "at least 24 bytes, got 7"),
        ("whsk_aHVudGVyMg==", "32 or 64 bytes"),
    ],
)
def test_secret_that_is_not_one_is_refused_and_not_quoted(secret: str, reason: str) -> None:
    with pytest.raises(InvalidArgumentError, match=reason) as caught:
        Endpoint("https://a.example/", [secret])
    assert secret.removeprefix("whsec_") not in str(caught.value)
    assert repr(Endpoint("https://a.example/secret")) == "Endpoint(a.example)"


PUBLIC = "93.184.216.34 2606:4700::6810:85e5"
# Of this machine, private, of the link, shared, of no machine, of many; with an address of IPv4 within.
NOT_PUBLIC = """
    127.0.0.1 10.1.2.3 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 0.0.0.0 224.0.0.1 255.255.255.255
    ::1 :: fd00::1 fe80::1 fec0::1 ff02::1
    ::ffff:93.184.216.34 64:ff9b::a00:1 2002:a00:1:: 2001:0:a00:1::
"""


@pytest.mark.parametrize("address", [*PUBLIC.split(), *NOT_PUBLIC.split()])
def test_only_addresses_of_the_internet_are_public(address: str) -> None:
    assert is_public(ipaddress.ip_address(address)) is (address in PUBLIC.split())


def test_allowed_networks_are_checked() -> None:
    with pytest.raises(InvalidArgumentError, match="has host bits set"):
        Guard(["10.0.0.1/8"])


def test_retry_after_is_seconds_or_a_date_and_at_most_a_day() -> None:
    values = ["120", "0", "-5", "soon", "9" * 5000, "Mon, 30 Nov 2026 00:01:00 GMT", None, "1.5", "86401"]
    now = 1_795_996_800.0  # that day at midnight
    assert [retry_after(each, now) for each in values] == [
        120.0,
        0.0,
        None,
        None,
        None,
        60.0,
        None,
        None,
        86_400.0,
    ]


def test_id_of_a_webhook_has_no_full_stop_and_is_no_other_messages() -> None:
    ids = [
        webhook_id(message(queue=queue, message_id=number, enqueued_at=at))
        for queue in ("orders", "a.b")
        for number in (1, 2)
        for at in ("2026-11-30T00:00:00.000001+00:00", "2026-11-30T00:00:00.000002+00:00")
    ]
    assert len(set(ids)) == 8
    assert not any("." in each for each in ids)
    assert ids[0] == "msg_orders_1_1795996800000001"


def test_endpoints_are_read_again_when_the_file_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "endpoints.toml"
    path.write_text(f'[a]\nurl = "https://a.example/"\nsecrets = ["{HMAC}"]\n')
    endpoints = EndpointsFile(path)

    def hosts() -> list[str | None]:
        found = [endpoints(message(group=each)) for each in ("a", "b")]
        return [None if each is None else each.host for each in found]

    assert hosts() == ["a.example", None]
    path.write_text('[b]\nurl = "https://b.example/hooks"\nsecrets = []\n')
    assert hosts() == [None, "b.example"]
    path.write_text('[b]\nurl = "https://user:pw@b.example/hooks"\nsecrets = []\n')
    assert hosts() == [None, "b.example"], "what can't be used changes nothing"
    path.unlink()
    assert hosts() == [None, "b.example"]
    assert "endpoints_not_read" in caplog.text
    assert "pw" not in caplog.text
    for text in (
        "[b",
        '[b]\nurl = "https://b.example/"',
        '[b]\nurl = "https://b/"\nsecrets = []\nsecret = ""',
        "b = 1",
    ):
        path.write_text(text)
        with pytest.raises(InvalidArgumentError):
            EndpointsFile(path)
