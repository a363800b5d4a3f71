"""A client and a schema that are one release apart."""

import psycopg
import pytest

from spanmq import Client
from spanmq.errors import SchemaVersionError

POLICY = """
create or replace function spanmq_call.get_policy(queue text) returns jsonb language sql security definer as $$
    select spanmq_core.settings_of(q, spanmq_core.policy_of(q.queue_id)) {change}
    from spanmq_core.find_queue(queue) q $$"""


def change_policy(dsn: str, change: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as session:
        session.execute(POLICY.format(change=change).encode())


def test_setting_of_a_later_schema_is_left_out(client: Client, database: str) -> None:
    before = client.queues.policy("orders")
    change_policy(database, '|| \'{"colour": "red"}\'')
    assert client.queues.policy("orders") == before


def test_setting_that_an_older_schema_lacks_is_named(client: Client, database: str) -> None:
    change_policy(database, "- 'keep'")
    with pytest.raises(SchemaVersionError, match="'keep'") as refused:
        client.queues.policy("orders")
    assert refused.value.code == "schema_older"
