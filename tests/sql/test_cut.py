"""Bodies that are too large for a look are left out, and not read for it."""

import pytest
from tests.sql.cost.counts import pages_touched
from tests.sql.queue import Connection

from spanmq.client import Client
from spanmq.errors import InvalidArgumentError

SIZE = 2_000_000
# Noise, which nothing compresses: it is stored apart, in pages of its own.
LARGE = (
    "(select to_jsonb(string_agg(md5(n::text || random()::text), ''))"
    f" from generate_series(1, {SIZE // 32}) n)"
)
LOOKS = {
    "peek": "select * from spanmq.peek('jobs', 10, 0{})",
    "archive": "select * from spanmq.peek_archive('jobs', 10, 0{})",
    "dead letters": "select * from spanmq.dead_letters('jobs'{})",
    "dead letters of one": "select * from spanmq.dead_letters_of('jobs', 2{})",
}


def fill(connection: Connection, what: str) -> None:
    """Put a small message and a large one there."""
    connection.execute("select pgmq.create('jobs')")
    connection.execute("select pgmq.send('jobs', '{\"small\": 1}')")
    connection.execute(f"select pgmq.send('jobs', {LARGE})".encode())
    if what == "archive":
        connection.execute("select pgmq.archive('jobs', array[1, 2])")
    elif what != "peek":
        connection.execute(
            "select spanmq.reject('jobs', min(lease_id), array[1, 2]) from spanmq.receive('jobs', 2)"
        )


@pytest.mark.parametrize("what", LOOKS)
def test_large_body_is_told_and_not_read(own_connection: Connection, what: str) -> None:
    fill(own_connection, what)
    whole, cut = LOOKS[what].format(""), LOOKS[what].format(", body_bytes_max => 1000")
    bodies = {
        row[0]: row[1] for row in own_connection.execute(f"select msg_id, message from ({cut}) l".encode())
    }
    assert bodies.pop(1, {"small": 1}) == {"small": 1}
    [(name, size)] = bodies[2].items()
    assert name == "spanmq.cut"
    assert SIZE / 2 < size < SIZE * 1.1
    # The whole of it is some 250 pages.
    assert pages_touched(own_connection, f"select sum(length(message::text)) from ({whole}) l") > 200
    assert pages_touched(own_connection, f"select sum(length(message::text)) from ({cut}) l") < 120


@pytest.mark.parametrize("what", LOOKS)
def test_message_without_headers_has_none_in_a_look(connection: Connection, what: str) -> None:
    fill(connection, what)
    looked = LOOKS[what].format(", body_bytes_max => 1000")
    assert connection.execute(f"select distinct headers from ({looked}) l".encode()).fetchall() == [(None,)]


def test_limit_is_of_bytes_and_no_less_than_none(connection: Connection) -> None:
    fill(connection, "peek")
    client = Client(connection=connection)
    assert client.peek("jobs", body_bytes_max=1_000)[0].body == {"small": 1}
    assert all("spanmq.cut" in message.body for message in client.peek("jobs", body_bytes_max=0))
    assert len(client.peek("jobs", body_bytes_max=2**31 - 1)[1].body) == SIZE // 32 * 32
    for look in (client.peek, client.inspect.archive, client.dead_letters.list):
        with pytest.raises(InvalidArgumentError, match="body_bytes_max"), connection.transaction():
            look("jobs", body_bytes_max=-1)
    with pytest.raises(InvalidArgumentError, match="body_bytes_max"):
        client.dead_letters.show("jobs", 1, body_bytes_max=-1)


def test_headers_are_cut_too(jobs: Connection) -> None:
    client = Client(connection=jobs)
    client.send("jobs", 1, headers={"long": "x" * 100_000})
    [message] = client.peek("jobs", body_bytes_max=1_000)
    assert message.body == 1
    assert message.headers is not None
    assert list(message.headers) == ["spanmq.cut"]
