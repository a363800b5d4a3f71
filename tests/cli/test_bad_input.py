"""Every misuse: its exit code, one clear line, what to do about it; and nothing is changed."""

import shlex
import socket
import traceback
from pathlib import Path

import pytest
from tests.cli.program import ask, spanmq

from spanmq import Client, __version__, errors
from spanmq.cli.failure import describe
from spanmq.client.dsn import with_timeouts


def test_error_is_what_it_is_then_details_then_what_to_do() -> None:
    shown = describe(errors.QueueBusyError("it is\n\tso", detail="a\nb", hint="do that"))
    assert shown.splitlines() == ["spanmq: queue busy: it is so", "detail: a", "detail: b", "hint: do that"]


# Arguments, what stderr begins with, and what its hint says.
FAILURES = {
    "unknown queue": (
        "message peek nope",
        "queue not found: queue 'nope' does not exist",
        "spanmq queue create",
    ),
    "name that is no text": ("queue metrics \udcff", "invalid queue name: ", ""),
    "both kinds": ("queue create x --unlogged --partition-interval 9", "invalid argument: ", ""),
    "NUL in a body": ("send orders '\"\\u0000\"'", "invalid body: the character NUL in the body", "as bytes"),
    "no budget": ("maintain --budget 0", "invalid argument: budget must be at least 1", ""),
    "nobody announces": ("notification update orders --throttle 1", "invalid argument: ", ""),
    "no PGMQ to adopt": (
        "schema adopt",
        f"adoption refused: the database holds spanmq {__version__}, not PGMQ",
        "Nothing needs to be done",
    ),
    "schema of a later version": (
        "schema sql --from 99.0",
        "schema newer: an upgrade is not possible",
        "newer",
    ),
    "schema of no version": ("schema sql --from x", "invalid argument: not a version: 'x'", "0.1.0"),
    "no such schedule": ("schedule pause nope", "schedule not found: ", "spanmq schedule list"),
    "no such dead letter": ("dead-letter edit orders 7", "dead letter not found: ", "spanmq message state"),
    "pattern that is none": ("dead-letter list orders --error '('", "invalid pattern: ", ""),
    "rule without a pattern": ("category set-rule x BUSINESS", "invalid argument: ", ""),
    "no such token": ("token rotate nope", "token not found: ", "spanmq token list"),
}


@pytest.mark.parametrize(("arguments", "message", "hint"), FAILURES.values(), ids=FAILURES)
def test_failure_is_one_clear_line(orders: str, arguments: str, message: str, hint: str) -> None:
    done = spanmq(*shlex.split(arguments), dsn=orders)
    assert (done.code, done.out) == (1, "")
    first, *others = done.err.splitlines()
    assert first.startswith(f"spanmq: {message}")
    assert all(line.startswith(("detail: ", "hint: ")) for line in others)
    assert hint in "".join(line for line in others if line.startswith("hint: "))
    assert ask(orders, "select array_agg(queue_name::text) from pgmq.meta") == ["orders"]
    assert ask(orders, "select count(*) from pgmq.q_orders") == 0


USAGES = {
    "no command": ("", "Usage: spanmq"),
    "unknown command": ("sned orders", "No such command 'sned'"),
    "no queue": ("message peek", "Missing argument 'QUEUE'"),
    "unknown option": ("message peek orders --jsno", "No such option"),
    "limit that is not a number": ("message peek orders -n many", "Invalid value for '--limit'"),
    "body that is no JSON": ("send orders hello", "the body is not valid JSON"),
    "body that only Python takes": ("send orders '[NaN]'", "NaN is not JSON"),
    "headers that are no object": ("send orders 1 --headers '[]'", "must be a JSON object"),
    "condition that is not JSON": (
        "message read orders --conditional '{'",
        "'--conditional': not valid JSON",
    ),
    "payload that is not JSON": ("dead-letter list --payload '{bad'", "'--payload': not valid JSON"),
    "headers that are not JSON": ("send orders 1 --headers '{'", "'--headers': not valid JSON"),
    "repaired body that is not JSON": ("dead-letter edit orders 7 --body '{'", "not valid JSON"),
    "patch that is not JSON": ("dead-letter redrive orders --patch '['", "'--patch': not valid JSON"),
    "scheduled body that is not JSON": ("schedule create daily orders '0 3 * * *' '{'", "not valid JSON"),
    "moment in words": ("dead-letter list orders --since soon", "not a time"),
    "delay in words": ("send orders 1 --delay soon", "neither a number of seconds nor a time"),
    "id that is none": ("message delete orders first", "'first' is not the id of a message"),
    "empty batches": ("send orders --batch 0", "Invalid value for '--batch'"),
}


@pytest.mark.parametrize(("arguments", "message"), USAGES.values(), ids=USAGES)
def test_usage_error_has_its_own_exit_code(arguments: str, message: str) -> None:
    # A database that is not there: nobody may get so far as to ask it.
    done = spanmq(*shlex.split(arguments), dsn="host=/nowhere")
    assert done.code == 2
    assert message in done.out + done.err
    assert "Traceback" not in done.err


def test_server_that_is_away(database: str) -> None:
    done = spanmq("queue list", "--dsn", "postgresql://127.0.0.1:1/x", dsn=database)
    assert done.code == 1
    first, hint = done.err.splitlines()
    assert first.startswith("spanmq: connection failed: ")
    assert hint.startswith("hint: Check --dsn")


@pytest.mark.parametrize(
    "dsn",
    [
        "postgres:/shop:hunter2@db/shop",
        "postgresql://shop:hunter2@[::1/shop",
        "postgresql://shop:hunter%2@db/shop",
        'postgres:/shop:a"hunter2@db/shop',
        "postgresql://shop@db/shop?hunter2=1",
    ],
)
def test_password_of_a_dsn_that_is_none_is_not_said(dsn: str) -> None:
    for done in (
        spanmq("schema verify", dsn=dsn),
        spanmq("serve", "--port", "0", "--without-tokens", dsn=dsn),
    ):
        assert done.code == 1
        assert "the DSN can't be read" in done.err
        assert "hint: Write postgresql://user@host/database, or host=… dbname=…" in done.err
        assert "hunter" not in done.out + done.err
    with pytest.raises(errors.InvalidArgumentError) as raised, Client(dsn):
        pass
    assert "hunter" not in "".join(traceback.format_exception(raised.value))
    with pytest.raises(errors.InvalidArgumentError) as raised:
        with_timeouts(dsn, None, application_name="tests")
    assert "hunter" not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_dsn_of_sqlalchemy_says_what_to_change(database: str, driver: str) -> None:
    dsn = f"postgresql+{driver}://shop:hunter2@db/shop"
    for done in (spanmq("queue list", dsn=dsn), spanmq("schema verify", dsn=dsn)):
        assert done.code == 1
        first, hint = done.err.splitlines()
        assert first.startswith("spanmq: invalid argument: the DSN can't be read")
        assert hint == f"hint: Write postgresql:// in place of postgresql+{driver}://, which is SQLAlchemy's."
        assert "hunter" not in done.err


def test_port_that_is_taken_is_told(database: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = spanmq("serve", "--port", port, "--without-tokens", dsn=database)
    assert (done.code, done.out) == (1, "")
    assert done.err.splitlines() == [
        f"spanmq: service not available: 127.0.0.1:{port} is in use by another program",
        "hint: Choose another port with --port; 0 selects a free one.",
    ]


def test_database_without_the_schema(empty_database: str) -> None:
    done = spanmq("queue list", dsn=empty_database)
    assert done.code == 1
    assert done.err.startswith("spanmq: schema missing: ")
    assert "hint: spanmq schema install" in done.err
    assert ask(empty_database, "select to_regnamespace('pgmq')") is None


@pytest.mark.parametrize("offset", ["3", "[3]", '"3"', '{"queues": 3}', '{"queues": {"orders": 3}}'])
def test_checkpoint_of_something_else_is_a_clear_error(orders: str, tmp_path: Path, offset: str) -> None:
    for folder in ("commits", "offsets"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "0").write_text(f"v1\n{{}}\n{offset}\n")
    done = spanmq("receiver release", "orders", "lake", "--checkpoint", str(tmp_path), dsn=orders)
    assert (done.code, "is not the checkpoint of a stream from a queue" in done.err) == (1, True), done.err
