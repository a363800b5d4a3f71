"""Names and texts that look like SQL are names and texts."""

import psycopg
import psycopg.types.json
import pytest
from psycopg import sql
from tests.sql.queue import Connection, sqlstate_of
from tests.sql.rights import FREE, calls, outcome

# The first argument of some is a topic's key, or the name of a logical queue.
UNCHECKED = {
    *FREE,
    *("send_topic", "bind_topic", "unbind_topic", "set_shards", "forget_shards", "enter_shards"),
}
REFUSED_BY = {"P0001", "MQ001", "42P01"}

NAMES = ['we"ird', "%s%I%L%1$", "a b", "back\\slash", "ж", ") or true", "x/*", "{}", "null", "select"]
REFUSED = ["x'; drop table spanmq_core.state", "x;y", "x--y", "$1", "a'b"]


@pytest.mark.parametrize("name", [each.replace("$", "") for each in NAMES])
def test_odd_names_are_names(connection: Connection, name: str) -> None:
    one, args = "select pgmq.{}", {"name": name, "body": '{"a": "\'; drop table x; --"}'}
    connection.execute("select pgmq.create(%(name)s), pgmq.enable_notify_insert(%(name)s)", args)
    connection.execute("select pgmq.send_batch(%(name)s, array_fill(%(body)s::jsonb, array[3]))", args)
    connection.execute("select pgmq.bind_topic('a.#', %(name)s), pgmq.send_topic('a.b', '1')", args)
    assert len(connection.execute("select * from spanmq.peek(%(name)s)", args).fetchall()) == 4
    leased = connection.execute("select lease_id from spanmq.receive(%(name)s, 2)", args).fetchall()
    connection.execute("select spanmq.ack(%(name)s, %(lease)s, array[1])", {**args, "lease": leased[0][0]})
    for verb in (
        "archive(%(name)s, 2)",
        "metrics(%(name)s)",
        "purge_queue(%(name)s)",
        "drop_queue(%(name)s)",
    ):
        connection.execute(sql.SQL(one).format(sql.SQL(verb)), args)
    assert connection.execute("select count(*) from spanmq_core.queue").fetchone() == (0,)


@pytest.mark.parametrize("name", REFUSED)
def test_sql_in_names_is_refused_by_every_function(jobs: Connection, name: str) -> None:
    for function, statement in calls(jobs, "jobs"):
        if (
            function not in UNCHECKED
            and not function.endswith("_with_poll")
            and f"{function}('jobs'::text" in statement
        ):
            quoted = sql.Literal(name).as_string(jobs)
            assert outcome(jobs, statement.replace("'jobs'", quoted), "none") in REFUSED_BY, statement
    assert sqlstate_of(jobs, lambda: jobs.execute("select pgmq.create(%s)", [name])) == "P0001"


@pytest.mark.parametrize(
    "text", ["'; drop table spanmq_core.state; --", "$1", "%s", '"', "\\", "a' or 'a'='a"]
)
def test_sql_in_what_else_is_given_is_text(jobs: Connection, text: str) -> None:
    group = psycopg.types.json.Jsonb({"x-pgmq-group": text})
    jobs.execute("select pgmq.send('jobs', to_jsonb(%s::text), %s)", [text, group])
    match = psycopg.types.json.Jsonb(text)
    found = jobs.execute("select msg_id from pgmq.read('jobs', 0, 1, %s)", [match]).fetchall()
    assert found == [(1,)]
    grouped = jobs.execute("select message from pgmq.read_grouped('jobs', 30, 1)").fetchall()
    assert grouped == [(text,)]
    bind = "select pgmq.bind_topic(%s, 'jobs')"
    assert sqlstate_of(jobs, lambda: jobs.execute(bind.encode(), [text])) == "P0001"
