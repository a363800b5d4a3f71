"""TLS by flags."""

import ssl
from pathlib import Path

import httpx
import pytest
from service.tests.running import certificate, service


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
            named = client.get("/health/live", headers={"Host": "queues.example"})
            assert named.headers["Strict-Transport-Security"] == "max-age=31536000"
            assert "Strict-Transport-Security" not in client.get("/health/live").headers
        plain = running.address.replace("https://", "http://")
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{plain}/health/live", trust_env=False)
        with running.client() as client, pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            client.get("/health/live")
