"""What Prometheus reads."""

import re
from pathlib import Path

import httpx
import psycopg
from prometheus_client.parser import text_string_to_metric_families
from tests.cli.program import do

PAGE = (Path(__file__).parents[2] / "docs/reference/metrics.md").read_text("utf-8")


def scraped(http: httpx.Client) -> dict[str, dict[str, float]]:
    """Return each sample of a queue, or of the service (``), by its name."""
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(http.get("/metrics").text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[sample.labels.get("queue", "")] = sample.value
    return found


def test_metrics_tell_of_queues_what_the_last_sample_knew(http: httpx.Client, service_database: str) -> None:
    do(
        service_database,
        "select pgmq.create('measured'), pgmq.send_batch('measured', array['1', '2', '3']::jsonb[])",
        "insert into spanmq_core.statistics select queue_id, clock_timestamp(), "
        "60, 3, 6, 12, 18, 24, 2, 1, 1, 7.5 from spanmq_core.queue where name = 'measured'",
    )
    found = scraped(http)
    assert found["spanmq_messages_sent_total"]["measured"] == 3
    assert found["spanmq_queue_backlog"]["measured"] == 2
    assert found["spanmq_queue_oldest_ready_seconds"]["measured"] == 7.5
    rates = [found[f"spanmq_queue_{each}_per_second"]["measured"] for each in ("received", "settled", "dead")]
    assert rates == [0.1, 0.2, 0.4]
    assert found["spanmq_queue_paused"]["measured"] == 0
    assert found["spanmq_queue_breaker_open"]["measured"] == 0
    do(
        service_database,
        (
            "select spanmq.report_worker('{measured}', 'w', 1, 1,"
            """ '{"measured": {"breaker": {"open_for": 600, "opening": 1}}}')"""
        ),
    )
    assert scraped(http)["spanmq_queue_breaker_open"]["measured"] == 1


def test_streams_are_told_with_what_they_hold(http: httpx.Client, service_database: str) -> None:
    do(
        service_database,
        "select pgmq.create('streamed'), pgmq.send_batch('streamed', array['1', '2', '3']::jsonb[])",
        "with opened as materialized (select * from spanmq.receiver_open('streamed', label => 'lake'))"
        " select spanmq.receiver_claim('streamed', receiver_id, incarnation, 0, 2) from opened",
    )
    found = scraped(http)
    assert found["spanmq_receiver_held"]["streamed"] == 2
    assert found["spanmq_receiver_seen_timestamp_seconds"]["streamed"] > 0


def test_old_sample_of_an_idle_queue_has_no_rates(http: httpx.Client, service_database: str) -> None:
    do(
        service_database,
        "select pgmq.create('idle')",
        "insert into spanmq_core.statistics select queue_id, clock_timestamp() - interval '1 hour', "
        "60, 3, 6, 12, 18, 24, 0, 0, 0, null from spanmq_core.queue where name = 'idle'",
    )
    assert scraped(http)["spanmq_queue_settled_per_second"]["idle"] == 0


def test_requests_are_counted_by_their_routes(http: httpx.Client) -> None:
    http.get("/v1/queues/measured/policy")
    http.get("/v1/queues/other/policy")
    http.get("/no/such/path")
    text = http.get("/metrics").text
    assert 'route="/v1/queues/{queue}/policy",status="404"' in text
    assert 'method="other",route="other",status="404"' in text
    assert "no/such" not in text


def test_every_metric_is_on_the_page(http: httpx.Client, service_database: str) -> None:
    do(service_database, "select pgmq.create('paged')")
    told = {name for name in scraped(http) if not name.endswith("_created")}
    names = {re.sub(r"_(bucket|count|sum)$", "", name) for name in told}
    assert {name for name in names if f"`{name}`" not in PAGE} == set()


def test_scrape_reads_the_same_whatever_waits(database: str) -> None:
    """Blocks read by the function, with one message and with thousands."""
    query = "explain (analyze, buffers, format json) select * from spanmq.latest_statistics()"

    def blocks(connection: psycopg.Connection[tuple[object, ...]]) -> int:
        # The least: the first reads the catalogue, and so may one that lags behind the changes of other databases.
        rows = [connection.execute(query).fetchone() for _ in range(5)]
        plans = [row[0][0]["Plan"] for row in rows if row is not None]  # type: ignore[index]
        return int(min(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] for plan in plans))

    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("select pgmq.create('waited')")
        before = blocks(connection)
        connection.execute("select pgmq.send('waited', '1') from generate_series(1, 3000)")
        connection.execute("vacuum analyze spanmq_core.state")
        assert blocks(connection) <= before + 20
