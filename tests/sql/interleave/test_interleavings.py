"""The verbs of a queue, statement by statement in every order: nothing is lost, delivered twice or out of order."""

import os
import random
from collections.abc import Callable, Iterator

import psycopg
import pytest
from tests.sql.interleave import scenes
from tests.sql.interleave.machine import Call
from tests.sql.interleave.scenes import Scene
from tests.sql.interleave.search import Search
from tests.sql.interleave.stepped import install_steps, places_of, plant
from tests.sql.interleave.verdict import problems

DEEP = bool(os.environ.get("SPANMQ_TEST_DEEP"))
SEED = int(os.environ.get("SPANMQ_TEST_SEED", "1"))
# Runs of each kind of scene; `python -m tests.sql.interleave` has no such bound.
RUNS = 600 if DEEP else 30
KINDS: dict[str, Callable[[], list[Scene]]] = {
    "pairs": scenes.pairs,
    "grouped": scenes.grouped,
    "three": scenes.three,
    "dropped": scenes.dropped,
}


@pytest.fixture
def search(database: str) -> Iterator[Search]:
    with psycopg.connect(database, autocommit=True) as connection:
        assert install_steps(connection) > 100
    with Search(database) as search:
        yield search


@pytest.mark.deeper
@pytest.mark.parametrize("kind", KINDS)
def test_no_order_of_statements_breaks_a_promise(kind: str, search: Search) -> None:
    chance = random.Random(SEED)
    everything = KINDS[kind]()
    while search.runs < RUNS and not search.violations:
        search.scene(chance.choice(everything), 2, RUNS // 10, chance)
    assert "\n".join(map(str, search.violations)) == ""


# A fault: function, what is replaced in it by what, and a scene that has the sessions it takes.
FAULTS = {
    "a group is not looked at again under its lock": (
        [("take_first", "for round in 1 .. 2 loop", "for round in 1 .. 1 loop")],
        scenes.grouped,
        "groups: receive / receive, visible",
    ),
    "a message that moved while a delete waited is not looked for again": (
        [("delete", "if n < cardinality(msg_ids) then", "if false then")],
        scenes.pairs,
        "receive and nack / delete, visible",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_fault_is_found(fault: str, database: str) -> None:
    changes, kind, name = FAULTS[fault]
    with psycopg.connect(database, autocommit=True) as connection:
        for function, old, new in changes:
            plant(connection, function, old, new)
        install_steps(connection)
    [scene] = [each for each in kind() if each.name == name]
    with Search(database) as search:
        search.scene(scene, 1, 300)
        assert search.violations, f"not found in {search.runs} runs"


ORDERED = Scene("ordered", (), ("a", "a", "b"), scenes.ORDERED)
RECEIVE = "select … from spanmq.receive('jobs', qty => 1, lease => 3600)"
ACK = "select … from spanmq.ack('jobs', 71, '{1}'::bigint[])"
RECEIVED = Call(0, RECEIVE, 1, 2, [("1", "71", "a", "1")])
ACKED = Call(0, ACK, 3, 4, [("1", "acked")])
COUNT = "select queue_length, queue_visible_length from pgmq.metrics('jobs')"


@pytest.mark.parametrize(
    ("rule", "more", "left"),
    [
        ("", [], [2, 3]),
        ("lost", [], [3]),
        ("not kept", [], [1, 2, 3]),
        ("settled twice", [Call(1, "select pgmq.delete('jobs', …)", 3, 4, [("1",)])], [2, 3]),
        ("delivered after it was settled", [Call(1, RECEIVE, 5, 6, [("1", "72", "a", "1")])], [2, 3]),
        (
            "leased twice at a time",
            [Call(1, "select msg_id from pgmq.pop('jobs', 1)", 2, 2, [("1",)])],
            [2, 3],
        ),
        ("in flight together", [Call(1, RECEIVE, 2, 2, [("2", "72", "a", "1")])], [2, 3]),
        ("miscounted", [Call(1, COUNT, 5, 6, [("3", "3")])], [2, 3]),
        ("invented", [], [2, 3, 4]),
    ],
)
def test_run_is_judged_by_the_rules_of_histories(rule: str, more: list[Call], left: list[int]) -> None:
    calls = [RECEIVED, ACKED, *more]
    rules = {each.partition(":")[0] for each in problems(ORDERED, [1, 2, 3], calls, left)}
    assert rules >= ({rule} if rule else set())
    assert bool(rules) == bool(rule)


def test_steps_stand_before_statements_on_shared_tables() -> None:
    source = """
    #variable_conflict use_column
    declare
        a int := case when true then 1 else 2 end;
    begin
        -- select from spanmq_core.state
        a := 'begin; then';
        if exists (select from spanmq_core.state) then
            delete from spanmq_core.later;
        elsif a = case when a = 1 then 2 end then
            <<rows>>
            for a in select msg_id from spanmq_core.state loop
                exit rows when a = 1;
            end loop rows;
        end if;
        case a when 1 then
            begin
                perform f(a);
            exception when others then
                insert into spanmq_core.failure values (1);
            end;
        else
            return;
        end case;
    end
    """
    lines = [source[place:].split("\n", maxsplit=1)[0] for place in places_of(source)]
    assert lines == [
        "if exists (select from spanmq_core.state) then",
        "delete from spanmq_core.later;",
        "<<rows>>",
        "insert into spanmq_core.failure values (1);",
    ]
