"""Metrics for Prometheus at /metrics: the service's own counts, and the queues' values at their last sample.

The cost of a scrape does not depend on the number of messages: maintain() takes the samples, at most a minute
apart.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from spanmq.model import LatestStatistics, Receiver
from spanmq_service.guard.gate import Gate

SECONDS: Final = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0)
Value = Callable[[LatestStatistics], float | None]


def _rate(field: str) -> Value:
    return lambda queue: getattr(queue, field) / queue.duration_seconds if queue.duration_seconds else None


# The gauges of each queue: what it means, and its value.
QUEUE_GAUGES: Final[dict[str, tuple[str, Value]]] = {
    "backlog": ("Messages that are not settled, at the last sample.", attrgetter("backlog")),
    "visible": ("Messages that a receive may get, at the last sample.", attrgetter("visible")),
    "in_flight": ("Messages under a running lease, at the last sample.", attrgetter("in_flight")),
    "dead_letters": ("Dead letters that wait.", attrgetter("dead_letters")),
    "received_per_second": ("Deliveries a second, before the last sample.", _rate("received")),
    "settled_per_second": ("Messages settled a second, before the last sample.", _rate("settled")),
    "failed_per_second": ("Failures a second, before the last sample.", _rate("failed")),
    "dead_per_second": ("New dead letters a second, before the last sample.", _rate("dead")),
    "paused": ("1: the queue is paused.", attrgetter("is_paused")),
    "breaker_open": (
        "1: the circuit breaker of a worker is open, and it receives nothing.",
        lambda queue: queue.breaker_open_until is not None,
    ),
    "oldest_ready_seconds": (
        "Since when the first visible message waited at the last sample.",
        attrgetter("oldest_ready_seconds"),
    ),
    "workers": ("Workers that reported within a minute.", attrgetter("workers")),
    "blocked_groups": ("Groups that wait for a dead letter, up to 1,000.", attrgetter("blocked_groups")),
    "failing": ("Messages that failed and wait for another attempt, up to 1,000.", attrgetter("failing")),
    "sampled_timestamp_seconds": (
        "When the last sample was taken.",
        lambda queue: None if queue.sampled_at is None else queue.sampled_at.timestamp(),
    ),
}


class Measures:
    """The service's own counts."""

    def __init__(self, gate: Gate) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "spanmq_requests", "Requests answered.", ("method", "route", "status"), registry=self.registry
        )
        self._seconds = Histogram(
            "spanmq_request_seconds",
            "Duration of requests, including the time that they waited for messages.",
            ("route",),
            buckets=SECONDS,
            registry=self.registry,
        )
        # Looking them up by their labels takes longer than counting.
        self._known: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        at_work = Gauge(
            "spanmq_requests_at_work", "Requests that are being processed.", registry=self.registry
        )
        at_work.set_function(lambda: gate.at_work)
        waiting = Gauge("spanmq_requests_waiting", "Requests that wait for messages.", registry=self.registry)
        waiting.set_function(lambda: gate.waiting)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        known = self._known.get((method, route, status))
        if known is None:
            known = self._requests.labels(method, route, status), self._seconds.labels(route)
            self._known[method, route, status] = known
        known[0].inc()
        known[1].observe(seconds)


class Families:
    """Metrics that were collected already."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[Metric]:
        """Return them."""
        return self._families


def of_queues(queues: Sequence[LatestStatistics]) -> Iterator[Metric]:
    """Yield a metric family for each value of a queue."""
    sent = CounterMetricFamily("spanmq_messages_sent", "Messages sent, by drawn ids.", labels=["queue"])
    for queue in queues:
        sent.add_metric([queue.queue], queue.sent_total)
    yield sent
    for name, (text, value) in QUEUE_GAUGES.items():
        gauge = GaugeMetricFamily(f"spanmq_queue_{name}", text, labels=["queue"])
        for queue in queues:
            if (number := value(queue)) is not None:
                gauge.add_metric([queue.queue], number)
        yield gauge
    text = "Age of the oldest transaction or snapshot of the server, which keeps dead rows and old segments."
    oldest = GaugeMetricFamily("spanmq_oldest_snapshot_seconds", text, labels=[])
    # The same in each row.
    for queue in queues[:1]:
        if queue.oldest_snapshot_seconds is not None:
            oldest.add_metric([], queue.oldest_snapshot_seconds)
    yield oldest


def of_receivers(receivers: Iterable[Receiver]) -> Iterator[Metric]:
    """Yield the number of messages that each Spark stream holds, and when it last called."""
    labels = ("queue", "receiver")
    held = GaugeMetricFamily("spanmq_receiver_held", "Messages that a Spark stream holds.", labels=labels)
    seen = GaugeMetricFamily(
        "spanmq_receiver_seen_timestamp_seconds",
        "When a Spark stream last called, to the minute.",
        labels=labels,
    )
    for receiver in receivers:
        if receiver.state != "released":
            named = [receiver.queue, receiver.label or receiver.receiver_id]
            held.add_metric(named, receiver.held)
            seen.add_metric(named, receiver.seen_at.timestamp())
    yield from (held, seen)


def exposition(
    measures: Measures, queues: Sequence[LatestStatistics], receivers: Iterable[Receiver]
) -> tuple[bytes, str]:
    """Return the metrics in Prometheus's text format, and its content type."""
    collected: Any = Families([*of_queues(queues), *of_receivers(receivers)])
    return generate_latest(measures.registry) + generate_latest(collected), CONTENT_TYPE_LATEST
