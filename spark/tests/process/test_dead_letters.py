"""Dead letters by cause: what is proposed, what is put back or discarded, and that a kill does no harm."""

from __future__ import annotations

import json
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from spanmq.cli.app import app
from spanmq.client import Client
from spanmq.codec.encryption import SEALED_KEY
from spanmq.errors import InvalidArgumentError, SpanmqError
from spanmq.model.cause import regex_of
from spanmq_spark.jobs.dead_letters import chunks, dead_letters, propose

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ERRORS = {
    "db": "connection to 10.0.0.{n}:5432 was lost after {n}.5 s",
    "customer": "no customer 'name {n}' (id 0f8fad5b-d9cb-469f-a165-7086728950{n:02})",
}


def die(client: Client, error: str, quantity: int, **more: Any) -> None:
    for n in range(quantity):
        client.reject(client.receive("orders", 1), error.format(n=n + 10), **more)


@pytest.fixture
def dead(client: Client) -> Client:
    """Twelve dead letters of one cause, five of another, three without an error."""
    client.send_batch("orders", range(30), group=[f"g{i % 4}" for i in range(30)])
    die(client, ERRORS["db"], 12, error_class="OSError", category="UNKNOWN")
    die(client, ERRORS["customer"] + "\nsecond line {n}", 5, error_class="KeyError", category="BUSINESS")
    for _ in range(3):
        client.reject(client.receive("orders", 1))
    return client


def test_causes_are_what_errors_have_in_common(dead: Client, spark: SparkSession, database: str) -> None:
    found = dead_letters(spark, database, "ord*").causes
    assert [(each.dead_letters, each.error_class, each.pattern) for each in found] == [
        (12, "OSError", "connection to <number>:<number> was lost after <number> s"),
        (5, "KeyError", "no customer <text> (id <id>)"),
        (3, None, ""),
    ]
    assert [each.categories for each in found] == [["UNKNOWN"], ["BUSINESS"], ["PERMANENT"]]
    assert found[0].groups == 4
    assert found[0].error == ERRORS["db"].format(n=21)
    assert found[0].first_dead_at < found[0].last_dead_at
    matching = dead.dead_letters.list(error=found[1].rule)
    assert [each.message_id for each in matching] == list(range(13, 18))


def test_selection_is_put_back_once_and_the_rest_stays(
    dead: Client, spark: SparkSession, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spanmq_spark.jobs.dead_letters.CHUNK", 5)
    act = partial(dead_letters, spark, database, "orders", delay=0)
    cause = act().causes[0].cause
    dry = act(act="redrive", causes=[cause], dry_run=True)
    assert (dry.chosen, dry.done) == (12, 0)
    assert len(dead.dead_letters.list("orders")) == 20
    counts: list[int] = []
    done = act(act="redrive", causes=[cause], progress=counts.append)
    assert (done.chosen, done.done, counts) == (12, 12, [5, 10, 12])
    assert sorted(message.message_id for message in dead.receive("orders", 12)) == list(range(1, 13))
    assert len(dead.dead_letters.list("orders")) == 8
    gone = act(act="discard", category="BUSINESS")
    assert (gone.chosen, gone.done) == (5, 5)
    assert [each.category for each in dead.dead_letters.count("orders")] == ["PERMANENT"]
    assert act(act="discard", all_causes=True).done == 3
    assert act(act="redrive", all_causes=True).done == 0


def test_rate_goes_on_over_calls(
    dead: Client, spark: SparkSession, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spanmq_spark.jobs.dead_letters.CHUNK", 5)
    dead_letters(spark, database, "orders", act="redrive", all_causes=True, rate=0.01, delay=1000)
    times = sorted(message.leased_until for message in dead.peek("orders", 100) if message.message_id <= 20)
    gaps = [(b - a).total_seconds() for a, b in pairwise(times)]
    assert len(times) == 20
    assert all(90 < gap < 200 for gap in gaps)


def test_what_became_of_those_put_back_proposes_a_category(
    dead: Client, spark: SparkSession, database: str
) -> None:
    # Of one cause four are put back and handled, of the other all die again.
    [db, customer, _] = dead_letters(spark, database, "orders").causes
    assert (db.proposal, customer.proposal) == (None, None)
    dead.dead_letters.redrive("orders", error_class="OSError", limit=4, delay=0)
    dead.ack(dead.receive("orders", 4))
    dead.dead_letters.redrive("orders", error_class="KeyError", delay=0)
    die(dead, ERRORS["customer"], 5, error_class="KeyError", category="BUSINESS")
    # Not decided yet: it is in the queue.
    dead.dead_letters.redrive("orders", error_class="OSError", limit=1, delay=3600)
    [db, customer, _] = dead_letters(spark, database, "orders").causes
    assert (db.put_back, db.died_again, db.proposal) == (4, 0, "TRANSIENT")
    assert (customer.put_back, customer.died_again, customer.proposal) == (5, 5, "PERMANENT")
    assert customer.reason == "5 of 5 redriven messages died again"
    dead.dead_letters.categories.set_rule("names", "BUSINESS", error="no customer")
    customer = dead_letters(spark, database, "orders").causes[1]
    assert (customer.proposal, customer.reason) == ("BUSINESS", "a rule says so")


def test_nothing_is_proposed_on_thin_evidence() -> None:
    assert propose("UNKNOWN", 2, 0) == (None, None)
    assert propose("UNKNOWN", 10, 5) == (None, None)
    assert propose("UNKNOWN", 10, 8)[0] == "PERMANENT"


def test_selection_that_means_nothing_is_refused(dead: Client, spark: SparkSession, database: str) -> None:
    cause = dead_letters(spark, database, "orders").causes[0].cause
    act = partial(dead_letters, spark, database, "orders", act="redrive")
    with pytest.raises(InvalidArgumentError, match="no selection says which"):
        act()
    with pytest.raises(InvalidArgumentError, match=f"Did you mean {cause}"):
        act(causes=[cause[:-1]])
    with pytest.raises(InvalidArgumentError, match="not 'drop'"):
        dead_letters(spark, database, "orders", act="drop")  # type: ignore[arg-type]
    assert len(dead.dead_letters.list("orders")) == 20


def test_selection_is_put_back_with_new_bodies_after_a_look(
    dead: Client, spark: SparkSession, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spanmq_spark.jobs.dead_letters.CHUNK", 5)
    act = partial(dead_letters, spark, database, "orders", act="redrive", all_causes=True, delay=0)
    body = "to_json(named_struct('number', cast(body as int), 'was', category))"
    dry = act(body=body, dry_run=True)
    assert (dry.chosen, dry.done) == (20, 0)
    assert [(each.message_id, each.before, each.after) for each in dry.changes] == [
        (n + 1, str(n), f'{{"number":{n},"was":"UNKNOWN"}}') for n in range(10)
    ]
    assert len(dead.dead_letters.list("orders")) == 20
    done = act(body=body)
    assert (done.chosen, done.done, done.changes) == (20, 20, [])
    # Recorded as all changes are, without bodies.
    recorded = [
        {*(each.details or ())} for each in dead.inspect.changes("orders") if each.action == "redrive"
    ]
    assert recorded == [{"dead_letter_ids", "qty", "delay"}] * 4
    messages = sorted(dead.receive("orders", 30), key=lambda each: each.message_id)
    assert [each.body["number"] for each in messages[:20]] == list(range(20))
    assert [each.body for each in messages[20:]] == list(range(20, 30))
    # What they were is history.
    history = dead.dead_letters.list("orders", redriven=True)
    assert [each.body for each in history] == list(range(20))


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("if(cast(body as int) = 18, null, body)", "of message 19 of queue orders, but NULL"),
        ("if(cast(body as int) = 18, '{', body)", "of message 19 of queue orders, but {"),
        ("named_struct('a', body)", "does not make JSON of the body of message"),
        ("bdoy", "bdoy"),
        ("body +", "PARSE_SYNTAX_ERROR"),
    ],
)
def test_expression_that_is_wrong_for_one_redrives_none(
    dead: Client, spark: SparkSession, database: str, body: str, problem: str
) -> None:
    for dry_run in (True, False):
        with pytest.raises(SpanmqError) as raised:
            dead_letters(
                spark, database, "orders", act="redrive", all_causes=True, body=body, dry_run=dry_run
            )
        assert problem in str(raised.value)
    assert len(dead.dead_letters.list("orders")) == 20


def test_encrypted_body_is_not_changed(client: Client, spark: SparkSession, database: str) -> None:
    client.send("orders", {SEALED_KEY: {"text": "x"}})
    client.reject(client.receive("orders"))
    with pytest.raises(InvalidArgumentError, match="message 1 of queue orders is encrypted"):
        dead_letters(spark, database, "orders", act="redrive", all_causes=True, body="'1'")
    with pytest.raises(InvalidArgumentError, match="for redriving"):
        dead_letters(spark, database, "orders", act="discard", all_causes=True, body="'1'")
    assert len(client.dead_letters.list("orders")) == 1


def test_expression_of_a_pattern_is_short_and_means_itself() -> None:
    assert regex_of("a.b <number> (<text>)") == r"a\.b [0-9.]+ \(.*\)"
    assert len(regex_of(300 * "é<id> ")) <= 500


def test_ids_are_gathered_by_queue() -> None:
    ids = [("a", 1), ("a", 2), ("b", 3)]
    assert list(chunks(ids)) == [("a", [1, 2]), ("b", [3])]
    assert list(chunks([])) == []


def test_large_bodies_end_a_chunk_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spanmq_spark.jobs.dead_letters.CHUNK_CHARACTERS", 10)
    bodies = [("a", "x" * 6), ("a", "y" * 6), ("a", "z")]
    assert [each for _, each in chunks(bodies, len)] == [["x" * 6, "y" * 6], ["z"]]


def test_command_lists_and_acts(dead: Client, spark: SparkSession, database: str) -> None:
    runner = CliRunner()

    def spanmq(*arguments: str) -> Any:
        return runner.invoke(app, ["pipeline", "dead-letters", "orders", *arguments, "--dsn", database])

    listed = spanmq()
    assert "no customer <text>" in listed.stdout
    causes = json.loads(spanmq("--json").stdout)["causes"]
    assert spanmq("--discard", "--all").exit_code == 2
    chosen = ["--cause", causes[1]["cause"]]
    assert "would have redriven 5" in spanmq("--redrive", *chosen, "--dry-run").stdout
    repaired = spanmq("--redrive", *chosen, "--body", "concat('[', body, ']')", "--dry-run").stdout
    assert "[12]" in repaired
    assert "would have redriven 5" in repaired
    assert "deleted 5 dead letters" in spanmq("--discard", "--yes", *chosen).stdout
    assert len(dead.dead_letters.list("orders")) == 15
