"""Tokens of the service: what is stored, and when one is good."""

from typing import Any

import pytest
from tests.sql.queue import Connection, sqlstate_of

from spanmq.client._sync.admin import Tokens
from spanmq.client.secret import hash_of
from spanmq.errors import InvalidArgumentError, NotFoundError


def good(connection: Connection, secret: str) -> bool:
    return bool(connection.execute("select from spanmq.check_token(%s)", (hash_of(secret),)).fetchall())


def test_secret_is_nowhere_in_the_database(tokens: Tokens, connection: Connection) -> None:
    secret = tokens.create("shop", queues=["orders-*"], verbs=["send", "send"])
    [(text, secret_hash)] = connection.execute("select t::text, t.secret_hash from spanmq_core.token t")
    assert secret not in text
    assert secret_hash == hash_of(secret)
    [token] = tokens.list()
    assert (token.name, token.queues, token.verbs, token.expires_at) == ("shop", ["orders-*"], ["send"], None)
    assert good(connection, secret)
    assert not good(connection, secret + "x")


def test_expired_token_is_not_good(tokens: Tokens, connection: Connection) -> None:
    secret = tokens.create("shop", queues=["*"], verbs=["send"], expires=60)
    assert good(connection, secret)
    connection.execute("update spanmq_core.token set expires_at = clock_timestamp() - interval '1 second'")
    assert not good(connection, secret)
    assert [token.name for token in tokens.list()] == ["shop"]


def test_revoked_token_is_not_good(tokens: Tokens, connection: Connection) -> None:
    secret = tokens.create("shop", queues=["*"], verbs=["send"])
    assert tokens.revoke("shop")
    assert not good(connection, secret)
    assert not tokens.revoke("shop")


def test_rotated_token_has_its_secret_before_for_the_overlap_only(
    tokens: Tokens, connection: Connection
) -> None:
    first = tokens.create("shop", queues=["*"], verbs=["send"])
    second = tokens.rotate("shop", overlap=60)
    assert good(connection, first)
    assert good(connection, second)
    connection.execute(
        "update spanmq_core.token set previous_until = clock_timestamp() - interval '1 second'"
    )
    assert not good(connection, first)
    third = tokens.rotate("shop")
    assert [good(connection, secret) for secret in (first, second, third)] == [False, False, True]
    with pytest.raises(NotFoundError, match="none"):
        tokens.rotate("none")


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
def test_bad_token_is_refused(
    tokens: Tokens, connection: Connection, options: dict[str, Any], words: str
) -> None:
    tokens.create("taken", queues=["*"], verbs=["send"])
    given: dict[str, Any] = {"name": "shop", "queues": ["*"], "verbs": ["send"], **options}
    with pytest.raises(InvalidArgumentError, match=words), connection.transaction():
        tokens.create(given.pop("name"), **given)
    assert [token.name for token in tokens.list()] == ["taken"]


def test_two_tokens_have_no_secret_in_common(tokens: Tokens, connection: Connection) -> None:
    first = tokens.create("shop", queues=["*"], verbs=["send"])
    tokens.rotate("shop", overlap=60)
    tokens.create("other", queues=["*"], verbs=["send"])
    rotate = f"select spanmq.rotate_token('other', '{hash_of(first)}')"
    create = f"select spanmq.create_token('third', '{hash_of(first)}', '{{*}}', '{{send}}')"
    assert [sqlstate_of(connection, each) for each in (rotate, create)] == ["MQ002", "MQ002"]
