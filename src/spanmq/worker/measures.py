"""Prometheus metrics of a worker: an observer of its events (extra `metrics`)."""

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, Counter, Enum, Gauge, Histogram, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from spanmq.errors import InvalidArgumentError
from spanmq.worker import event as events
from spanmq.worker.event import Event

__all__ = ["Measures"]

SECONDS: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
)
# By path: whether a probe is good, and the state.
Probes = Mapping[str, Callable[[], tuple[bool, str]]]
BREAKER_STATES: Final = ["closed", "open", "trial"]


class Measures:
    """Counts of one worker in a registry of their own; `Worker(…, observers=[log.write, measures])`."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._received = self._counter("messages_received", "Messages received under leases.", "queue")
        self._settled = self._counter("messages_settled", "Messages settled, by outcome.", "queue", "outcome")
        self._failed = self._counter(
            "messages_failed", "Messages whose handler failed, by category.", "queue", "category"
        )
        of_queue: dict[str, Any] = {"labelnames": ("queue",), "registry": self.registry}
        text = "Duration of handlers; for a batch, its share for each message."
        self._seconds = Histogram("spanmq_worker_handling_seconds", text, buckets=SECONDS, **of_queue)
        text = "Messages that are held: waiting, being handled or being settled."
        self._held = Gauge("spanmq_worker_messages_held", text, **of_queue)
        text = "The state of the circuit breaker."
        self._breaker = Enum("spanmq_worker_breaker", text, states=BREAKER_STATES, **of_queue)
        self._lost = self._counter("leases_lost", "Leases that expired or were revoked.", "queue")
        self._overran = self._counter("handlers_overran", "Handlers that exceeded their time limit.", "queue")
        text = "Running handlers that take unusually long."
        self._slow = Gauge("spanmq_worker_handlers_slow", text, **of_queue)
        # Their messages, by queue and id.
        self._slow_messages: set[tuple[str, int]] = set()
        self._calls_failed = self._counter("calls_failed", "Failed calls of the database.", "queue")
        self._broken = self._counter("connections_broken", "Failed attempts to connect to the database.")
        # The events that are counted; the others do not affect the metrics.
        self._counts: dict[type, Callable[[Any], None]] = {
            events.WorkerStarted: self._started,
            events.MessagesReceived: self._count_received,
            events.MessageHandled: lambda event: self._seconds.labels(event.queue).observe(event.seconds),
            events.MessageSettled: self._count_settled,
            events.LeaseLost: lambda event: self._lost.labels(event.queue).inc(),
            events.HandlerOverran: lambda event: self._overran.labels(event.queue).inc(),
            events.HandlerSlow: self._count_slow,
            events.CallFailed: lambda event: self._calls_failed.labels(event.queue).inc(),
            events.ConnectionBroken: lambda _: self._broken.inc(),
            events.ShardJoined: lambda event: self._breaker.labels(event.queue).state("closed"),
            events.ShardLeft: lambda event: self._breaker.remove(event.queue),
            events.BreakerOpened: lambda event: self._breaker.labels(event.queue).state("open"),
            events.BreakerTried: lambda event: self._breaker.labels(event.queue).state("trial"),
            events.BreakerClosed: lambda event: self._breaker.labels(event.queue).state("closed"),
        }

    def __call__(self, event: Event) -> None:
        """Count an event."""
        count = self._counts.get(type(event))
        if count is not None:
            count(event)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"spanmq_worker_{name}", text, labels, registry=self.registry)

    def _started(self, event: events.WorkerStarted) -> None:
        # Present from the start, because a rate needs the zero before the first event.
        for queue in event.queues:
            self._breaker.labels(queue).state("closed")
            self._held.labels(queue)
            self._slow.labels(queue)
            self._seconds.labels(queue)
            for counter in (self._received, self._lost, self._overran, self._calls_failed):
                counter.labels(queue)
            self._settled.labels(queue, "acked")

    def _count_received(self, event: events.MessagesReceived) -> None:
        self._received.labels(event.queue).inc(event.count)
        self._held.labels(event.queue).inc(event.count)

    def _count_settled(self, event: events.MessageSettled) -> None:
        self._settled.labels(event.queue, event.outcome).inc()
        self._held.labels(event.queue).dec()
        if self._slow_messages and (event.queue, event.message_id) in self._slow_messages:
            self._slow_messages.discard((event.queue, event.message_id))
            self._slow.labels(event.queue).dec()
        # A failure without an exception is categorized by the rules in the database.
        if event.error is not None:
            self._failed.labels(event.queue, event.category or "by rule").inc()

    def _count_slow(self, event: events.HandlerSlow) -> None:
        if (event.queue, event.message_id) not in self._slow_messages:
            self._slow_messages.add((event.queue, event.message_id))
            self._slow.labels(event.queue).inc()


class _IPv6Server(ThreadingWSGIServer):
    address_family = socket.AF_INET6


class _Requests(WSGIRequestHandler):
    def log_message(self, *_: object) -> None:
        """Log nothing: supervisors send a request every few seconds."""


def application(measures: Measures, probes: Probes) -> Callable[..., Any]:
    """Return the application that answers /metrics and the paths of probes."""
    metrics = make_wsgi_app(measures.registry)

    def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Any:
        probe = probes.get(environ["PATH_INFO"])
        if probe is None:
            return metrics(environ, start)
        is_good, state = probe()
        status = "200 OK" if is_good else "503 Service Unavailable"
        start(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{state}\n".encode()]

    return answer


@contextmanager
def served(measures: Measures, probes: Probes, port: int, host: str = "127.0.0.1") -> Iterator[str]:
    """Serve the metrics while the block runs; return their URL. Port 0 is any free one.

    `host` is the address to listen on, IPv4 or IPv6: 0.0.0.0 or :: for probes and a Prometheus on other machines.
    The answers have no access control. Raises InvalidArgumentError if the address cannot be listened on.
    """
    answer = application(measures, probes)
    try:
        kind = _IPv6Server if ":" in host else ThreadingWSGIServer
        server = make_server(host, port, answer, kind, handler_class=_Requests)
    except (OSError, OverflowError, UnicodeError) as error:
        raise InvalidArgumentError(f"cannot serve metrics on {host} at port {port}: {error}") from error
    thread = threading.Thread(target=server.serve_forever, name="spanmq metrics", daemon=True)
    thread.start()
    try:
        yield f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
