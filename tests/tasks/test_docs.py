"""The programs of the pages about tasks, batches and testing run, and the pages name every option."""

import re
from collections.abc import Callable
from inspect import signature

import psycopg
import pytest
from tests.documented import DOCS, run_programs

import spanmq.tasks
import spanmq.testing
from spanmq import Client
from spanmq.tasks import Tasks
from spanmq.tasks.call import Options

PAGES = {
    name: (DOCS / f"guides/{name}.md").read_text("utf-8")
    for name in ("tasks", "batches", "signals", "testing")
}


def test_pages_name_everything() -> None:
    words = set(re.findall(r"\w+", PAGES["tasks"] + PAGES["batches"] + PAGES["signals"]))
    assert {*spanmq.tasks.__all__, *Options.__annotations__} - {"Task"} - words == set()
    assert set(spanmq.testing.__all__) - set(re.findall(r"\w+", PAGES["testing"])) == set()


def test_programs_about_tasks_run(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPANMQ_DSN", database)
    with Client(database) as client:
        for queue in ("orders", "mail"):
            client.queues.create(queue)
        with client.transaction() as transaction:
            transaction.connection.execute("create table placed (number int)")
        scope = run_programs("guides/tasks")
        scope["place"](scope["Order"](20, "Bonn"))
        bodies = [message.body["task"] for queue in ("orders", "mail") for message in client.peek(queue)]
    scope["tasks"].close()
    assert bodies == ["ship", "ship", "recount", "ship", "send_mail"]


def test_programs_about_batches_run(
    spanmq_tasks: Callable[[Tasks], Tasks], capsys: pytest.CaptureFixture[str]
) -> None:
    scope = run_programs("guides/batches")
    own = spanmq_tasks(scope["tasks"])
    scope["weigh_all"]([1, 2])
    assert spanmq.testing.drain(own) == 3
    assert capsys.readouterr().out == "Monday: 7.5 kg, 2 done and 0 dead of 2\n"


def test_programs_about_signals_run(
    spanmq_tasks: Callable[[Tasks], Tasks], capsys: pytest.CaptureFixture[str]
) -> None:
    scope = run_programs("guides/signals")
    own = spanmq_tasks(scope["tasks"])
    for name, number in (("ask", 17), ("charge", 18), ("book", 19), ("book", 20)):
        scope[name].send(number)
    scope["webhook"]({"id": "payment-18", "status": "paid"})
    spanmq.testing.drain(own)
    scope["approve"](17, "ann")
    for trip, is_booked in ((19, True), (20, False)):
        own.signal(f"flight:{trip}", {"is_booked": is_booked})
    spanmq.testing.drain(own)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "please approve order 17"
    assert set(lines[1:]) == {
        "order 17: approved by ann",
        "order 18: paid",
        *("trip 19: hotel reserved", "trip 19: paid", "trip 20: hotel reserved", "trip 20: hotel released"),
    }


def test_programs_about_testing_run(
    spanmq_tasks: Callable[[Tasks], Tasks], spanmq_client: Client, spanmq_database: str
) -> None:
    scope = run_programs("guides/testing", {"__name__": "test_shop"})
    spanmq_tasks(scope["tasks"])
    tests = [run for name, run in scope.items() if name.startswith("test_")]
    fixtures = {"spanmq_client": spanmq_client, "spanmq_database": spanmq_database}
    for run in tests:
        run(*(fixtures[name] for name in signature(run).parameters))
        scope["tasks"].clients.client().queues.purge("orders")
    assert len(tests) == 9


def test_recipes_run(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPANMQ_DSN", database)
    with Client(database) as client:
        client.queues.create("orders")
        client.queues.create("mail")
        with client.transaction() as transaction:
            transaction.connection.execute("create table placed (number int)")
            transaction.connection.execute("create table handled (message_id bigint primary key)")
        scope = run_programs("guides/recipes")
        [message] = client.receive("orders")
        assert message.body["args"] == {"number": 17}
        with psycopg.connect(database) as other:
            scope["handle"](message, other)
        assert client.receive("mail")[0].body == {"order": 17}
        with psycopg.connect(database) as connection:
            counts = connection.execute(
                "select (select count(*) from placed), (select count(*) from handled)"
            )
            assert counts.fetchall() == [(1, 1)]
    scope["engine"].dispose()
    scope["client"].close()
    scope["tasks"].close()
