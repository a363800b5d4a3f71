"""Tokens of the service: what is stored, and when one is good."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg import Connection

from spanmq.client import Client
from spanmq.client._async.admin import hash_of
from spanmq.errors import InvalidArgumentError, NotFoundError


@pytest.fixture
def client(connection: Connection[Any]) -> Client:
    return Client(connection=connection)


def good(client: Client, secret: str) -> bool:
    return client.admin.tokens.check(secret) is not None


def test_secret_is_nowhere_in_the_database(client: Client, connection: Connection[Any]) -> None:
    secret = client.admin.tokens.create("shop", queues=["orders-*"], verbs=["send", "send"])
    row = connection.execute("select t::text, t.secret_hash from spanmq_core.token t").fetchone()
    assert row is not None
    assert secret not in row[0]
    assert row[1] == hash_of(secret)
    token = client.admin.tokens.check(secret)
    assert token is not None
    assert (token.name, token.queues, token.verbs, token.expires_at) == ("shop", ["orders-*"], ["send"], None)
    assert client.admin.tokens.list() == [token]
    assert not good(client, secret + "x")


def test_expired_token_is_not_good(client: Client, connection: Connection[Any]) -> None:
    secret = client.admin.tokens.create("shop", queues=["*"], verbs=["send"], expires=60)
    assert good(client, secret)
    connection.execute("update spanmq_core.token set expires_at = clock_timestamp() - interval '1 second'")
    assert not good(client, secret)
    assert [token.name for token in client.admin.tokens.list()] == ["shop"]


def test_revoked_token_is_not_good(client: Client) -> None:
    secret = client.admin.tokens.create("shop", queues=["*"], verbs=["send"])
    assert client.admin.tokens.revoke("shop")
    assert not good(client, secret)
    assert not client.admin.tokens.revoke("shop")


def test_rotated_token_has_its_secret_before_for_the_overlap_only(
    client: Client, connection: Connection[Any]
) -> None:
    first = client.admin.tokens.create("shop", queues=["*"], verbs=["send"])
    second = client.admin.tokens.rotate("shop", overlap=60)
    assert good(client, first)
    assert good(client, second)
    connection.execute(
        "update spanmq_core.token set previous_until = clock_timestamp() - interval '1 second'"
    )
    assert not good(client, first)
    third = client.admin.tokens.rotate("shop")
    assert [good(client, secret) for secret in (first, second, third)] == [False, False, True]
    with pytest.raises(NotFoundError, match="none"):
        client.admin.tokens.rotate("none")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": ""}, "name of a token"),
        ({"name": "x" * 101}, "name of a token"),
        ({"name": "taken"}, "there is a token 'taken'"),
        ({"queues": []}, "patterns"),
        ({"queues": ["a;b"]}, "no queue has a name like 'a;b'"),
        ({"queues": ["x" * 48]}, "no queue has a name"),
        ({"queues": [None]}, "NULL"),
        ({"queues": "orders"}, "lists"),
        ({"verbs": []}, "needs a verb"),
        ({"verbs": ["delete"]}, "no verb 'delete'"),
        ({"expires": 0}, "would have expired"),
    ],
)
def test_bad_token_is_refused(client: Client, options: dict[str, Any], words: str) -> None:
    client.admin.tokens.create("taken", queues=["*"], verbs=["send"])
    given: dict[str, Any] = {"name": "shop", "queues": ["*"], "verbs": ["send"], **options}
    with pytest.raises(InvalidArgumentError, match=words), client.transaction() as inner:
        inner.admin.tokens.create(given.pop("name"), **given)
    assert [token.name for token in client.admin.tokens.list()] == ["taken"]


def test_secret_in_place_of_its_hash_is_refused_and_not_repeated(connection: Connection[Any]) -> None:
    with pytest.raises(psycopg.Error) as caught:
        connection.execute("select spanmq.create_token('a', 'my secret', array['*'], array['send'])")
    assert caught.value.sqlstate == "MQ002"
    assert "my secret" not in str(caught.value)
