"""The settings of a service."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spanmq.errors import InvalidArgumentError
from spanmq_service.http.request_origin import is_loopback


def _option(default: Any, words: str) -> Any:
    """Return a field, and what the command says of its option."""
    return field(default=default, metadata={"help": words})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The options of `spanmq serve`, described in docs/guides/service.md. Times are in seconds.

    Without tokens any caller that reaches the service has all rights; it then listens on this machine only.
    """

    dsn: str = field(default="", repr=False)  # it may hold a password
    with_tokens: bool = True
    host: str = _option("127.0.0.1", "The address to listen on.")
    port: int = _option(8080, "The port; 0: any that is free.")
    pool_size: int = _option(8, "Connections to the database; three more listen and check it.")
    pool_timeout: float = _option(5.0, "Seconds to wait for one of them; then 503.")
    requests_max: int = _option(200, "Maximum of concurrent requests; more get 503.")
    requests_per_token_max: int = _option(100, "Maximum of concurrent requests of one token; more get 429.")
    anonymous_max: int = _option(
        100, "Requests without a valid token that wait for their client; more end the slowest."
    )
    waiting_max: int = _option(5_000, "Requests that wait for messages at once.")
    waiting_per_token_max: int = _option(2_500, "Waiting requests of one token; more get 429.")
    wait_max: float = _option(20.0, "Seconds that a request may wait for messages.")
    read_timeout: float = _option(20.0, "Seconds to receive a request, and to send 16 kB of its answer.")
    body_bytes_max: int = _option(16 * 1024 * 1024, "Bytes that a request may have.")
    answer_bytes_max: int = _option(
        4 * 1024 * 1024, "Bytes of bodies in one answer, unless its first message has more."
    )
    token_cache: float = _option(2.0, "Seconds that tokens and keys are remembered.")
    statement_timeout: float = _option(30.0, "Seconds that the database may take.")
    grace: float = _option(25.0, "Seconds that requests have to end after a signal.")
    trusted_proxies: str = _option(
        "", "Addresses of proxies whose X-Forwarded-For and -Proto count, with commas; none by default."
    )
    tls_certificate: Path | None = _option(None, "A file with the certificate chain, PEM.")
    tls_key: Path | None = field(default=None, repr=False, metadata={"help": "A file with its key, PEM."})

    def __post_init__(self) -> None:
        """Raise InvalidArgumentError for settings that are not valid."""
        for name in (
            "pool_size",
            "requests_max",
            "requests_per_token_max",
            "anonymous_max",
            "body_bytes_max",
            "answer_bytes_max",
        ):
            if getattr(self, name) < 1:
                raise InvalidArgumentError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 <= self.port <= 65_535:
            raise InvalidArgumentError(f"{self.port} is not a valid port")
        if self.tls_key is not None and self.tls_certificate is None:
            raise InvalidArgumentError("a TLS key requires its certificate")
        for path in (self.tls_certificate, self.tls_key):
            if path is not None and not path.is_file():
                raise InvalidArgumentError(f"this file does not exist: {str(path)!r}")
        if not self.with_tokens and not is_loopback(self.host):
            raise InvalidArgumentError(
                f"a service without tokens can't listen on {self.host!r}",
                hint="Every caller in the network would have all rights: use tokens, or 127.0.0.1.",
            )

    @property
    def scheme(self) -> str:
        """Return the scheme of the address."""
        return "http" if self.tls_certificate is None else "https"
