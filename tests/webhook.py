"""A real HTTP server that receives webhooks."""

import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from typing import Any

from tests.patience import WAIT_SECONDS

# The status of an answer, and a header that it has.
Answer = int | tuple[int, dict[str, str]]


@dataclass(frozen=True)
class Request:
    """What arrived, `at` this process's clock, and the status that was answered."""

    path: str
    headers: dict[str, str]
    body: bytes
    status: int
    at: float


class Hook:
    """A webhook: it keeps what it was sent, and answers as it was told, then with 200.

    An answer of 0 is none: the connection stays open until the hook is closed.
    """

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.arrived: Queue[Request] = Queue()
        # What is answered beside the path.
        self.text = ""
        self._is_closed = threading.Event()
        hook = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                at = time.monotonic()
                body = self.rfile.read(int(self.headers["Content-Length"]))
                answer = hook.answers.pop(0) if hook.answers else 200
                status, headers = answer if isinstance(answer, tuple) else (answer, {})
                own = {name.lower(): value for name, value in self.headers.items()}
                hook.arrived.put(Request(self.path, own, body, status, at))
                if not status:
                    hook._is_closed.wait(WAIT_SECONDS)
                    return
                text = f"you sent to {self.path} {hook.text}".encode() if status != 204 else b""
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "/elsewhere")
                for name, value in headers.items():
                    self.send_header(name, value)
                if status != 204:
                    self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: Any) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/services/secret-of-mine"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def next(self) -> Request:
        return self.arrived.get(timeout=WAIT_SECONDS)

    def all(self) -> list[Request]:
        """Return what has arrived and was not returned yet."""
        return [self.arrived.get() for _ in range(self.arrived.qsize())]

    def close(self) -> None:
        self._is_closed.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
