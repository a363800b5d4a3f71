"""TLS by flags."""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx
import pytest
from tests.cli.program import spanmq
from tests.service.running import certificate, service

from spanmq.errors import InvalidArgumentError
from spanmq.service import Settings


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate for this machine, and its key."""
    return certificate(tmp_path)


def test_service_speaks_tls_and_nothing_else(orders: str, tmp_path: Path, pair: tuple[Path, Path]) -> None:
    certificate, key = pair
    with service(orders, tmp_path, "--tls-certificate", str(certificate), "--tls-key", str(key)) as running:
        assert running.address.startswith("https://")
        trusting = ssl.create_default_context(cafile=str(certificate))
        with running.client(verify=trusting) as client:
            assert client.get("/health/ready").status_code == 200
        plain = running.address.replace("https://", "http://")
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{plain}/health/live", trust_env=False)
        with running.client() as client, pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            client.get("/health/live")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tls_certificate": Path("/no/such/file")}, "no file"),
        ({"tls_key": Path("/no/such/file")}, "needs its certificate"),
        ({"host": "0.0.0.0", "with_tokens": False}, "without tokens"),
        ({"port": 70_000}, "no port"),
        ({"pool_size": 0}, "pool_size"),
    ],
)
def test_bad_setting_is_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        Settings(dsn="postgresql://u:hunter2@h/d", **options)  # type: ignore[arg-type]
    assert "hunter2" not in repr(Settings(dsn="postgresql://u:hunter2@h/d"))


def test_bad_setting_ends_the_command_with_a_sentence(orders: str) -> None:
    done = spanmq("serve", "--without-tokens", "--host", "0.0.0.0", dsn=orders)
    assert done.code == 1
    assert done.err.startswith("spanmq: bad argument: a service without tokens can't listen on '0.0.0.0'")
