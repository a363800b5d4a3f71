"""Sessions of people: what is stored, who may keep them, and when one is good."""

from contextlib import closing

from tests.sql.queue import Connection
from tests.sql.race.sessions import Race

from spanmq.client import Client
from spanmq.client._sync.admin import Tokens
from spanmq.client.secret import hash_of, new_secret


def opened(connection: Connection, secret: str, seconds: float = 43_200) -> str | None:
    """Open a session; return its key, None if the secret is not valid."""
    key = new_secret()
    row = connection.execute(
        "select name from spanmq.open_session(%s, %s, %s)", (hash_of(secret), hash_of(key), seconds)
    ).fetchone()
    return None if row is None else key


def closed(connection: Connection, key: str) -> bool:
    row = connection.execute("select spanmq.close_session(%s)", (hash_of(key),)).fetchone()
    return row == (True,)


def good(connection: Connection, key: str | None) -> bool:
    assert key is not None
    return bool(connection.execute("select from spanmq.check_session(%s)", (hash_of(key),)).fetchall())


def test_session_stands_for_its_token(tokens: Tokens, connection: Connection) -> None:
    secret = tokens.create("shop", queues=["orders-*"], verbs=["look"])
    key = opened(connection, secret)
    assert key is not None
    assert (
        connection.execute("select * from spanmq.check_session(%s)", (hash_of(key),)).fetchall()
        == connection.execute("select * from spanmq.check_token(%s)", (hash_of(secret),)).fetchall()
        != []
    )
    row = connection.execute("select s::text, s.key_hash from spanmq_core.session s").fetchone()
    assert row is not None
    assert secret not in row[0]
    assert key not in row[0]
    assert row[1] == hash_of(key)
    # Neither is the other.
    assert not connection.execute("select from spanmq.check_token(%s)", (hash_of(key),)).fetchall()
    assert not good(connection, secret)


def test_secret_that_is_not_good_opens_nothing(tokens: Tokens, connection: Connection) -> None:
    secret = tokens.create("shop", queues=["*"], verbs=["look"], expires=60)
    connection.execute("update spanmq_core.token set expires_at = clock_timestamp() - interval '1 second'")
    assert opened(connection, secret) is None
    assert opened(connection, "spanmq_unknown") is None
    assert connection.execute("select count(*) from spanmq_core.session").fetchone() == (0,)


def test_session_ends_in_time_and_is_swept_by_the_next(tokens: Tokens, connection: Connection) -> None:
    secret = tokens.create("shop", queues=["*"], verbs=["look"])
    key = opened(connection, secret, 60)
    assert good(connection, key)
    connection.execute("update spanmq_core.session set expires_at = clock_timestamp() - interval '1 second'")
    assert not good(connection, key)
    later = opened(connection, secret)
    assert connection.execute("select count(*) from spanmq_core.session").fetchone() == (1,)
    assert good(connection, later)


def test_session_ends_with_its_token(tokens: Tokens, connection: Connection) -> None:
    secret = tokens.create("shop", queues=["*"], verbs=["look"])
    key = opened(connection, secret)
    connection.execute("update spanmq_core.token set expires_at = clock_timestamp() - interval '1 second'")
    assert not good(connection, key)
    connection.execute("update spanmq_core.token set expires_at = null")
    assert good(connection, key)
    tokens.revoke("shop")
    assert not good(connection, key)
    assert connection.execute("select count(*) from spanmq_core.session").fetchone() == (0,)


def test_session_ends_with_its_secret_after_the_overlap(tokens: Tokens, connection: Connection) -> None:
    key = opened(connection, tokens.create("shop", queues=["*"], verbs=["look"]))
    tokens.rotate("shop", overlap=60)
    assert good(connection, key)
    connection.execute(
        "update spanmq_core.token set previous_until = clock_timestamp() - interval '1 second'"
    )
    assert not good(connection, key)


def test_closed_session_is_over(tokens: Tokens, connection: Connection) -> None:
    key = opened(connection, tokens.create("shop", queues=["*"], verbs=["look"]))
    assert key is not None
    assert closed(connection, key)
    assert not good(connection, key)
    assert not closed(connection, key)


def test_session_of_a_token_that_is_being_revoked_goes_with_it(database: str) -> None:
    with Client(database) as client:
        secret = client.admin.tokens.create("shop", queues=["*"], verbs=["look"])
    with closing(Race(database)) as race:
        opener, revoker = race.begun(), race.open()
        opener.rows("select spanmq.open_session(%s, repeat('a', 64))", hash_of(secret))
        revoking = revoker.waiting("select spanmq.revoke_token('shop')")
        opener.commit()
        assert revoking.rows() == [(True,)]
        assert opener.value("select count(*) from spanmq_core.session") == 0
