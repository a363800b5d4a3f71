"""A receiver of pushed messages, for tests of programs that push: it checks the signature of each request."""

import base64
import hmac
import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from spanmq.push import Endpoint

# The status of an answer, or that and its headers.
Answer = int | tuple[int, dict[str, str]]


@dataclass(frozen=True, slots=True)
class PushedMessage:
    """A request with a valid signature: `id` and `body` of the message, all `headers`, and the answer's `status`."""

    id: str
    body: Any
    headers: dict[str, str]
    status: int


@dataclass(slots=True)
class Webhook:
    """A receiver at `url`; `endpoint` is what `push_worker` takes.

    `received` are the requests with a valid signature; `refused` counts the others, which are answered by 401. Set
    `answers` to what the next requests are answered, such as 410 or (429, {"Retry-After": "60"}); then it is 200.
    """

    url: str
    endpoint: Endpoint
    received: list[PushedMessage] = field(default_factory=list)
    refused: int = 0
    answers: list[Answer] = field(default_factory=list)


@contextmanager
def webhook(secret: str | None = None) -> Iterator[Webhook]:
    """Open a receiver of pushed messages on this machine, yield it, and close it.

    Requests must be signed with this `secret`, `whsec_…` or `whsk_…`; None: a new one. Raises what Endpoint raises.
    """
    secret = secret or "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    url = f"http://127.0.0.1:{server.server_port}/"
    server.webhook = hook = Webhook(url, Endpoint(url, [secret]))  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, name="spanmq webhook", daemon=True)
    thread.start()
    try:
        yield hook
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        hook: Webhook = self.server.webhook  # type: ignore[attr-defined]
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        answer: Answer = 401
        if _is_signed(hook.endpoint, headers, raw):
            answer = hook.answers.pop(0) if hook.answers else 200
            status = answer if isinstance(answer, int) else answer[0]
            hook.received.append(PushedMessage(headers["webhook-id"], json.loads(raw), headers, status))
        else:
            hook.refused += 1
        status, more = answer if isinstance(answer, tuple) else (answer, {})
        self.send_response(status)
        for name, value in {**more, "Content-Length": "0"}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


def _is_signed(endpoint: Endpoint, headers: dict[str, str], body: bytes) -> bool:
    """Return whether one of the signatures of a request is the endpoint's."""
    try:
        expected = endpoint.headers(headers["webhook-id"], int(headers["webhook-timestamp"]), body)
        signatures = headers["webhook-signature"].split(" ")
    except (KeyError, ValueError):
        return False
    return any(hmac.compare_digest(signature, expected["webhook-signature"]) for signature in signatures)
