"""The settings of a service."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from spanmq.errors import InvalidArgumentError
from spanmq.service.request_origin import is_loopback


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The options of `spanmq serve`, described in docs/guides/service.md. Times are in seconds.

    Without tokens any caller that reaches the service has all rights; it then listens on this machine only.
    """

    dsn: str = field(repr=False)  # it may hold a password
    host: str = "127.0.0.1"
    port: int = 8080
    with_tokens: bool = True
    pool_size: int = 8
    pool_timeout: float = 5.0
    statement_timeout: float = 30.0
    requests_max: int = 200
    requests_per_token_max: int = 100
    anonymous_max: int = 100
    waiting_max: int = 5_000
    waiting_per_token_max: int = 2_500
    wait_max: float = 20.0
    body_bytes_max: int = 16 * 1024 * 1024
    read_timeout: float = 20.0
    token_cache: float = 2.0
    grace: float = 25.0
    tls_certificate: Path | None = None
    tls_key: Path | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Raise InvalidArgumentError for settings that are not valid."""
        for name in (
            "pool_size",
            "requests_max",
            "requests_per_token_max",
            "anonymous_max",
            "body_bytes_max",
        ):
            if getattr(self, name) < 1:
                raise InvalidArgumentError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 <= self.port <= 65_535:
            raise InvalidArgumentError(f"{self.port} is not a valid port")
        if self.tls_key is not None and self.tls_certificate is None:
            raise InvalidArgumentError("a TLS key requires its certificate")
        for path in (self.tls_certificate, self.tls_key):
            if path is not None and not path.is_file():
                raise InvalidArgumentError(f"there is no file {str(path)!r}")
        if not self.with_tokens and not is_loopback(self.host):
            raise InvalidArgumentError(
                f"a service without tokens can't listen on {self.host!r}",
                hint="Every caller in the network would have all rights: use tokens, or 127.0.0.1.",
            )

    @property
    def scheme(self) -> str:
        """Return the scheme of the address."""
        return "http" if self.tls_certificate is None else "https"
