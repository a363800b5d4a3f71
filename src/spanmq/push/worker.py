"""A worker whose handler is an HTTP request: each message is sent to its endpoint, and settled by the answer."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from email.utils import parsedate_to_datetime
from time import monotonic, time
from typing import TYPE_CHECKING, Final, Unpack
from urllib.parse import quote

from spanmq.client.argument import duration
from spanmq.codec.body import RawJson
from spanmq.errors import ExtraNotInstalledError
from spanmq.model import Message
from spanmq.push.addresses import AddressRefusedError, Guard
from spanmq.push.endpoint import Endpoint, without_url
from spanmq.version import __version__
from spanmq.worker import Worker, log
from spanmq.worker.event import Event, WorkerStopping
from spanmq.worker.failure import HandlerFailure, judge, storable
from spanmq.worker.handler import Handler
from spanmq.worker.job import Released
from spanmq.worker.setting import WorkerOptions

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

# What is read of an answer, for the text of a failure.
ANSWER_BYTES_MAX: Final = 1_000
# An endpoint may ask for no longer pause: it would be forgotten.
RETRY_AFTER_SECONDS_MAX: Final = 86_400.0
# How long a message is held while its endpoint asked for a pause; then it is released until the pause ends.
HELD_SECONDS_MAX: Final = 10.0
# The endpoint, or what is before it, can't serve now. Other answers say something about the request.
UNAVAILABLE: Final = frozenset({408, 421, 425, 429})

EndpointOf = Callable[[Message], Endpoint | Awaitable[Endpoint | None] | None]


def push_worker(
    queue: str,
    endpoint: Endpoint | EndpointOf,
    *,
    allow: Iterable[str] = (),
    timeout: float = 15.0,
    **settings: Unpack[WorkerOptions],
) -> Worker:
    """Return a worker that sends each message of a `queue` to an endpoint, as a webhook.

    `endpoint` is that of all messages, or a function, plain or async, that returns the one of a message, and None if
    it has none. The networks in `allow`, such as "10.0.0.0/8", may be sent to; other private addresses are refused. A
    request may take `timeout` seconds. The other `settings` are those of Worker. Raises InvalidArgumentError for what
    is not valid, and ExtraNotInstalledError without the package aiohttp.
    """
    try:
        import aiohttp  # noqa: F401, complained of before anything is received
    except ModuleNotFoundError as error:
        raise ExtraNotInstalledError(
            f"pushing messages needs {error.name}, which is not installed", extra="push"
        ) from error
    push = _Push(endpoint, Guard(allow), duration("timeout", timeout).total_seconds())
    settings["observers"] = [*settings.get("observers", (log.write,)), push]
    # As the server returns it: what is signed is what is sent.
    settings["decoder"] = RawJson
    if not isinstance(endpoint, Endpoint):
        settings.setdefault("breaker", None)  # an endpoint that is down says nothing about the others
    return Worker(queue, push.handler(), **settings)


class _Push:
    """The handler: posts a message to its endpoint, and waits while that one asked for a pause."""

    def __init__(self, endpoint: Endpoint | EndpointOf, guard: Guard, timeout: float) -> None:
        self._endpoint = endpoint
        self._guard = guard
        self._timeout = timeout
        self._session: ClientSession | None = None
        # Until when endpoints asked for no request, by their URLs, on this process's monotonic clock.
        self._paused: dict[str, float] = {}
        self._stopping = asyncio.Event()

    def __call__(self, event: Event) -> None:
        """Release what is held when the worker stops."""
        if isinstance(event, WorkerStopping):
            self._stopping.set()

    def hears_routine(self) -> bool:
        """Return False: events of single messages are not needed."""
        return False

    def handler(self) -> Handler:
        """Return the handler for a worker."""
        return Handler(
            self._push,
            "push",
            is_async=True,
            takes_connection=False,
            takes_batches=False,
            judge=_judge,
            opened=self._opened,
        )

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[None]:
        """Open the connections for as long as a worker runs."""
        import aiohttp

        self._stopping.clear()
        # As many connections as there are slots; a session reads no proxy and no .netrc from the environment.
        connector = aiohttp.TCPConnector(limit=0, socket_factory=self._guard.socket_for)
        async with aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=self._timeout),
            auto_decompress=False,
            headers={
                "Accept-Encoding": "identity",
                "Content-Type": "application/json",
                "User-Agent": f"spanmq/{__version__}",
            },
        ) as self._session:
            yield

    async def _push(self, message: Message) -> None:
        import aiohttp

        endpoint = await self._endpoint_of(message)
        await self._wait_for(endpoint)
        raw = message.body.text
        body = raw if isinstance(raw, bytes) else raw.encode()
        headers = endpoint.headers(webhook_id(message), int(time()), body)
        assert self._session is not None  # a worker calls its handler only while it is open
        try:
            async with self._session.post(
                endpoint.url, data=body, headers=headers, allow_redirects=False
            ) as response:
                if not 200 <= response.status <= 299:
                    raise await self._refused(endpoint, response)
        except TimeoutError:
            reason = f"{endpoint.host} did not answer within {self._timeout:g} s"
            raise _UndeliveredError(
                HandlerFailure("nack", reason, "DEPENDENCY", error_class="TimeoutError")
            ) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            cause = getattr(error, "os_error", error)
            category = "UNKNOWN" if isinstance(cause, AddressRefusedError | ValueError) else "DEPENDENCY"
            # The text of other errors quotes the URL.
            text = str(cause) if isinstance(cause, OSError) else ""
            reason = without_url(
                f"{endpoint.host} can't be reached: {text or type(cause).__name__}", endpoint.url
            )
            raise _UndeliveredError(
                HandlerFailure("nack", storable(reason), category, error_class=type(cause).__qualname__)
            ) from None

    async def _endpoint_of(self, message: Message) -> Endpoint:
        if isinstance(self._endpoint, Endpoint):
            return self._endpoint
        answer = self._endpoint(message)
        endpoint = await answer if inspect.isawaitable(answer) else answer
        if endpoint is None:
            # It may be added yet.
            reason = f"no endpoint is known for the group {message.group!r}"
            raise _UndeliveredError(
                HandlerFailure("nack", storable(reason), "UNKNOWN", error_class="NoEndpoint")
            )
        return endpoint

    async def _wait_for(self, endpoint: Endpoint) -> None:
        """Hold a message while its endpoint pauses: what holds it receives no further one.

        Raises _UndeliveredError for one that is to be released: its attempt does not count.
        """
        until = self._paused.get(endpoint.url, 0.0)
        if (left := until - monotonic()) <= 0:
            self._paused.pop(endpoint.url, None)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(min(left, HELD_SECONDS_MAX)):
                await self._stopping.wait()
                raise _UndeliveredError(Released())
        if left > HELD_SECONDS_MAX:
            raise _UndeliveredError(Released(left - HELD_SECONDS_MAX))

    async def _refused(self, endpoint: Endpoint, response: "ClientResponse") -> "_UndeliveredError":
        """Return what becomes of a message that the endpoint did not accept."""
        status = response.status
        answer = (await response.content.read(ANSWER_BYTES_MAX)).decode("utf-8", "replace")
        reason = " ".join(f"{endpoint.host} answered {status} {answer}".split())
        reason = storable(without_url(reason, endpoint.url))
        error_class = f"HTTP {status}"
        if status == 410:
            return _UndeliveredError(HandlerFailure("reject", reason, "PERMANENT", error_class=error_class))
        seconds = None
        if status in (429, 503):
            seconds = retry_after(response.headers.get("Retry-After"), time())
        if seconds is not None:
            self._paused[endpoint.url] = monotonic() + seconds
        category = "DEPENDENCY" if status in UNAVAILABLE or status >= 500 else "UNKNOWN"
        failure = HandlerFailure(
            "nack", reason, category, seconds, error_class, closes_bucket=seconds is not None
        )
        return _UndeliveredError(failure)


class _UndeliveredError(Exception):
    """Carries the verdict on a message that was not accepted."""

    def __init__(self, verdict: HandlerFailure | Released) -> None:
        super().__init__()
        self.verdict = verdict


def _judge(error: BaseException, _: Message) -> HandlerFailure | Released:
    """Return the verdict for an exception; any but our own comes from the function that finds endpoints."""
    return error.verdict if isinstance(error, _UndeliveredError) else judge(error, {})


def webhook_id(message: Message) -> str:
    """Return the id of a message for its receiver: the same at each attempt and after a redrive, and no other's.

    A queue of this name in another database has the same message ids, and not at the same microseconds.
    """
    queue = quote(message.queue, safe="").replace(".", "%2E")
    return f"msg_{queue}_{message.message_id}_{message.enqueued_at.timestamp() * 1e6:.0f}"


def retry_after(value: str | None, now: float) -> float | None:
    """Return the seconds that a Retry-After header asks for, at most a day; None if it is missing or not valid.

    `now` is the time, in seconds since 1970, for a header that is a date.
    """
    if value is None:
        return None
    try:
        seconds = float(int(value)) if value.isdecimal() else parsedate_to_datetime(value).timestamp() - now
    except (ValueError, OverflowError):
        return None
    return min(max(seconds, 0.0), RETRY_AFTER_SECONDS_MAX)
