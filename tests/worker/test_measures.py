"""What a worker counts for Prometheus."""

import threading
import urllib.error
import urllib.request
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.cli.program import wait_until
from tests.patience import WAIT_SECONDS
from tests.worker.running import working

from spanmq.client import Client
from spanmq.errors import InvalidArgumentError
from spanmq.model import Message
from spanmq.worker import Reject
from spanmq.worker.breaker import BreakerPolicy
from spanmq.worker.condition import Condition
from spanmq.worker.event import BreakerOpened, MessageSettled
from spanmq.worker.measures import Measures, served

PAGE = (Path(__file__).parents[2] / "docs/reference/metrics.md").read_text("utf-8")


def test_counts_are_those_of_the_worker(client: Client, database: str) -> None:
    measures = Measures()

    def handle(message: Message) -> None:
        if message.body == "bad":
            raise Reject("no such order")

    def counted(name: str, **labels: str) -> float | None:
        return measures.registry.get_sample_value(f"spanmq_worker_{name}", {"queue": "orders", **labels})

    with working(database, handle, observers=[measures]) as record:
        assert counted("messages_received_total") == 0
        assert counted("breaker", spanmq_worker_breaker="closed") == 1
        client.send_batch("orders", ["good", "good", "bad"])
        record.wait(MessageSettled, 3)
    assert counted("messages_received_total") == 3
    assert counted("messages_settled_total", outcome="acked") == 2
    assert counted("messages_settled_total", outcome="dead") == 1
    assert counted("messages_failed_total", category="BUSINESS") == 1
    assert counted("handling_seconds_count") == 3
    assert counted("messages_held") == 0


def test_breaker_shows_its_state(client: Client, database: str) -> None:
    measures = Measures()

    def handle(message: Message) -> None:
        raise ConnectionError("nobody there")

    policy = BreakerPolicy(failures=1, tries=1, pause=60.0)
    with working(database, handle, observers=[measures], breaker=policy) as record:
        client.send_batch("orders", [1, 2])
        record.wait(BreakerOpened)
    labels = {"queue": "orders", "spanmq_worker_breaker": "open"}
    assert measures.registry.get_sample_value("spanmq_worker_breaker", labels) == 1


def test_every_metric_is_on_the_page() -> None:
    names = {
        family.name + ("_total" if family.type == "counter" else "")
        for family in Measures().registry.collect()
        if not family.name.endswith("_created")
    }
    assert len(names) > 5
    assert {name for name in names if f"`{name}`" not in PAGE} == set()


def serve(*place: Any) -> AbstractContextManager[str]:
    """Serve the metrics of a worker that has not started, at a port and perhaps an address."""
    return served(Measures(), Condition().probes, *place)


def test_port_that_is_taken_and_address_of_another_machine_are_refused() -> None:
    with serve(0) as url:
        for place, name in (((port_of(url),), str(port_of(url))), ((0, "192.0.2.1"), r"192\.0\.2\.1")):
            with pytest.raises(InvalidArgumentError, match=name), serve(*place):
                pass


def test_port_is_free_afterwards() -> None:
    def is_free_afterwards() -> bool:
        with serve(0) as url:
            pass
        with suppress(InvalidArgumentError), serve(port_of(url)) as again:
            return again == url
        return False

    # Another process may take one of them at that moment.
    assert any(is_free_afterwards() for _ in range(3))


@pytest.mark.parametrize("host", ["0.0.0.0", "::1"])
def test_address_is_chosen(host: str) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with serve(0, host) as url:
        with opener.open(url.replace("0.0.0.0", "127.0.0.1"), timeout=WAIT_SECONDS) as answer:
            assert "spanmq_worker" in answer.read().decode()
        assert (urlsplit(url).hostname, url[-8:]) == (host, "/metrics")


def port_of(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port


def test_probes_say_when_a_worker_is_stuck(client: Client, database: str) -> None:
    condition = Condition(patience=0.2)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    blocks, release = threading.Event(), threading.Event()

    async def block(message: Message) -> None:
        blocks.set()
        release.wait()

    def probe(path: str) -> tuple[int, str]:
        try:
            with opener.open(url.replace("/metrics", path), timeout=WAIT_SECONDS) as answer:
                return answer.status, answer.read().decode().strip()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode().strip()

    with served(Measures(), condition.probes, 0) as url:
        assert (probe("/healthz"), probe("/readyz")) == ((200, "starting"), (503, "starting"))
        with working(database, block, observers=[condition]) as record:
            wait_until(lambda: probe("/readyz") == (200, "ready"))
            client.send("orders", 1)
            # Before that it is stuck for a moment where the machine is.
            assert blocks.wait(WAIT_SECONDS)
            wait_until(lambda: probe("/healthz")[0] == 503)
            assert "blocked the event loop" in probe("/readyz")[1]
            release.set()
            record.wait(MessageSettled)
            wait_until(lambda: probe("/healthz") == (200, "ready"))
        assert probe("/readyz") == (503, "stopping")
