"""Sessions of people: what is stored, who may keep them, and when one is good."""

from contextlib import closing

import pytest
from tests.sql.queue import Connection
from tests.sql.race.sessions import Race
from tests.sql.service_tokens import ServiceTokens

from spanmq.client import Client
from spanmq.client._async.admin import hash_of
from spanmq.errors import InvalidArgumentError


@pytest.fixture
def tokens(connection: Connection) -> ServiceTokens:
    return ServiceTokens(Client(connection=connection))


def good(tokens: ServiceTokens, key: str | None) -> bool:
    assert key is not None
    return tokens.check_session(key) is not None


def test_session_stands_for_its_token(tokens: ServiceTokens, connection: Connection) -> None:
    secret = tokens.create("shop", queues=["orders-*"], verbs=["look"])
    key = tokens.open_session(secret)
    assert key is not None
    assert tokens.check_session(key) == tokens.check(secret)
    row = connection.execute("select s::text, s.key_hash from spanmq_core.session s").fetchone()
    assert row is not None
    assert secret not in row[0]
    assert key not in row[0]
    assert row[1] == hash_of(key)
    # Neither is the other.
    assert tokens.check(key) is None
    assert not good(tokens, secret)


def test_secret_that_is_not_good_opens_nothing(tokens: ServiceTokens, connection: Connection) -> None:
    secret = tokens.create("shop", queues=["*"], verbs=["look"], expires=60)
    connection.execute("update spanmq_core.token set expires_at = clock_timestamp() - interval '1 second'")
    assert tokens.open_session(secret) is None
    assert tokens.open_session("spanmq_unknown") is None
    assert connection.execute("select count(*) from spanmq_core.session").fetchone() == (0,)


def test_session_ends_in_time_and_is_swept_by_the_next(tokens: ServiceTokens, connection: Connection) -> None:
    secret = tokens.create("shop", queues=["*"], verbs=["look"])
    key = tokens.open_session(secret, seconds=60)
    assert good(tokens, key)
    connection.execute("update spanmq_core.session set expires_at = clock_timestamp() - interval '1 second'")
    assert not good(tokens, key)
    later = tokens.open_session(secret)
    assert connection.execute("select count(*) from spanmq_core.session").fetchone() == (1,)
    assert good(tokens, later)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), 1e30])
def test_time_that_is_none_is_refused(tokens: ServiceTokens, seconds: float) -> None:
    secret = tokens.create("shop", queues=["*"], verbs=["look"])
    with pytest.raises(InvalidArgumentError):
        tokens.open_session(secret, seconds=seconds)


def test_session_ends_with_its_token(tokens: ServiceTokens, connection: Connection) -> None:
    secret = tokens.create("shop", queues=["*"], verbs=["look"])
    key = tokens.open_session(secret)
    connection.execute("update spanmq_core.token set expires_at = clock_timestamp() - interval '1 second'")
    assert not good(tokens, key)
    connection.execute("update spanmq_core.token set expires_at = null")
    assert good(tokens, key)
    tokens.revoke("shop")
    assert not good(tokens, key)
    assert connection.execute("select count(*) from spanmq_core.session").fetchone() == (0,)


def test_session_ends_with_its_secret_after_the_overlap(
    tokens: ServiceTokens, connection: Connection
) -> None:
    key = tokens.open_session(tokens.create("shop", queues=["*"], verbs=["look"]))
    tokens.rotate("shop", overlap=60)
    assert good(tokens, key)
    connection.execute(
        "update spanmq_core.token set previous_until = clock_timestamp() - interval '1 second'"
    )
    assert not good(tokens, key)


def test_closed_session_is_over(tokens: ServiceTokens) -> None:
    key = tokens.open_session(tokens.create("shop", queues=["*"], verbs=["look"]))
    assert key is not None
    assert tokens.close_session(key)
    assert not good(tokens, key)
    assert not tokens.close_session(key)


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
