"""Metrics for Prometheus at /metrics: the service's own counts, and the queues' values at their last sample.

The cost of a scrape does not depend on the number of messages: maintain() takes the samples, at most a minute
apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from spanmq.model import LatestStatistics, Receiver

if TYPE_CHECKING:
    from spanmq.service.gate import Gate

SECONDS: Final = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0)
# The gauges of each queue: the field of its statistics, and its meaning.
GAUGES: Final = {
    "backlog": "Messages that are not settled, at the last sample.",
    "visible": "Messages that a receive may get, at the last sample.",
    "in_flight": "Messages under a running lease, at the last sample.",
    "dead_letters": "Dead letters that wait.",
}
RATES: Final = {
    "received": "Deliveries a second, before the last sample.",
    "settled": "Messages settled a second, before the last sample.",
    "failed": "Failures a second, before the last sample.",
    "dead": "New dead letters a second, before the last sample.",
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


class Queues(Collector):
    """The metrics of queues, collected once."""

    def __init__(self, queues: Iterable[LatestStatistics]) -> None:
        self._queues = list(queues)

    def collect(self) -> Iterator[Metric]:
        """Yield a metric family for each value of a queue."""
        sent = CounterMetricFamily("spanmq_messages_sent", "Messages sent, by drawn ids.", labels=["queue"])
        for each in self._queues:
            sent.add_metric([each.queue], each.sent_total)
        yield sent
        for field, text in GAUGES.items():
            gauge = GaugeMetricFamily(f"spanmq_queue_{field}", text, labels=["queue"])
            for each in self._queues:
                gauge.add_metric([each.queue], getattr(each, field))
            yield gauge
        for field, text in RATES.items():
            gauge = GaugeMetricFamily(f"spanmq_queue_{field}_per_second", text, labels=["queue"])
            for each in self._queues:
                if each.duration_seconds:
                    gauge.add_metric([each.queue], getattr(each, field) / each.duration_seconds)
            yield gauge
        paused = GaugeMetricFamily("spanmq_queue_paused", "1: the queue is paused.", labels=["queue"])
        breaker = GaugeMetricFamily(
            "spanmq_queue_breaker_open",
            "1: the circuit breaker of a worker is open, and it receives nothing.",
            labels=["queue"],
        )
        ready = GaugeMetricFamily(
            "spanmq_queue_oldest_ready_seconds",
            "Since when the first visible message waited at the last sample.",
            labels=["queue"],
        )
        sampled = GaugeMetricFamily(
            "spanmq_queue_sampled_timestamp_seconds", "When the last sample was taken.", labels=["queue"]
        )
        for each in self._queues:
            paused.add_metric([each.queue], each.is_paused)
            breaker.add_metric([each.queue], each.breaker_open_until is not None)
            if each.oldest_ready_seconds is not None:
                ready.add_metric([each.queue], each.oldest_ready_seconds)
            if each.sampled_at is not None:
                sampled.add_metric([each.queue], each.sampled_at.timestamp())
        yield from (paused, breaker, ready, sampled)


class Receivers(Collector):
    """The Spark streams that consume queues."""

    def __init__(self, receivers: Iterable[Receiver]) -> None:
        self._receivers = [each for each in receivers if each.state != "released"]

    def collect(self) -> Iterator[Metric]:
        """Yield the number of messages that each stream holds, and when it last called."""
        labels = ("queue", "receiver")
        held = GaugeMetricFamily("spanmq_receiver_held", "Messages that a Spark stream holds.", labels=labels)
        seen = GaugeMetricFamily(
            "spanmq_receiver_seen_timestamp_seconds",
            "When a Spark stream last called, to the minute.",
            labels=labels,
        )
        for each in self._receivers:
            held.add_metric([each.queue, each.label or each.receiver_id], each.held)
            seen.add_metric([each.queue, each.label or each.receiver_id], each.seen_at.timestamp())
        yield from (held, seen)


def exposition(
    measures: Measures, found: Iterable[LatestStatistics], receivers: Iterable[Receiver]
) -> tuple[bytes, str]:
    """Return the metrics in Prometheus's text format, and its content type."""
    queues = CollectorRegistry()
    queues.register(Queues(found))
    queues.register(Receivers(receivers))
    return generate_latest(measures.registry) + generate_latest(queues), CONTENT_TYPE_LATEST
