"""Sessions of people: what is stored, who may keep them, and when one is good."""

from contextlib import closing

from tests.sql.queue import Connection, one, rows
from tests.sql.race.sessions import Race

from spanmq.client import Client
from spanmq.client._sync.admin import Tokens
from spanmq.client.secret import hash_of, new_secret


def opened(connection: Connection, secret: str, seconds: float = 43_200) -> str | None:
    """Open a session; return its key, None if the secret is not valid."""
    key = new_secret()
    call = "select name from spanmq.open_session(%s, %s, %s)"
    return key if rows(connection, call, hash_of(secret), hash_of(key), seconds) else None


def closed(connection: Connection, key: str) -> bool:
    return one(connection, "select spanmq.close_session(%s)", hash_of(key)) is True


def good(connection: Connection, key: str | None) -> bool:
    assert key is not None
    return bool(connection.execute("select from spanmq.check_session(%s)", (hash_of(key),)).fetchall())


def test_session_stands_for_its_token(tokens: Tokens, connection: Connection) -> None:
    secret = tokens.create("shop", queues=["orders-*"], verbs=["look"])
    key = opened(connection, secret)
    assert key is not None
    of_session = rows(connection, "select * from spanmq.check_session(%s)", hash_of(key))
    assert of_session == rows(connection, "select * from spanmq.check_token(%s)", hash_of(secret)) != []
    [(text, key_hash)] = rows(connection, "select s::text, s.key_hash from spanmq_core.session s")
    assert secret not in text
    assert key not in text
    assert key_hash == hash_of(key)
    # Neither is the other.
    assert not connection.execute("select from spanmq.check_token(%s)", (hash_of(key),)).fetchall()
    assert not good(connection, secret)


def test_secret_that_is_not_good_opens_nothing(tokens: Tokens, connection: Connection) -> None:
    secret = tokens.create("shop", queues=["*"], verbs=["look"], expires=60)
    connection.execute("update spanmq_core.token set expires_at = clock_timestamp() - interval '1 second'")
    assert opened(connection, secret) is None
    assert opened(connection, "spanmq_unknown") is None
    assert one(connection, "select count(*) from spanmq_core.session") == 0


def test_session_ends_in_time_and_is_swept_by_the_next(tokens: Tokens, connection: Connection) -> None:
    secret = tokens.create("shop", queues=["*"], verbs=["look"])
    key = opened(connection, secret, 60)
    assert good(connection, key)
    connection.execute("update spanmq_core.session set expires_at = clock_timestamp() - interval '1 second'")
    assert not good(connection, key)
    later = opened(connection, secret)
    assert one(connection, "select count(*) from spanmq_core.session") == 1
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
    assert one(connection, "select count(*) from spanmq_core.session") == 0


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
