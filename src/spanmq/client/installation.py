"""The schema, installed over a connection of its own."""

import psycopg

from spanmq import schema
from spanmq.client.password import Password, with_password


def install_at(dsn: str, *, password: Password | None, follow_table_grants: bool) -> schema.Installed:
    """Install the schema at a DSN, with this password; `follow_table_grants` as `schema.install` has it."""
    address = with_password(dsn, password)
    with psycopg.connect(address, autocommit=True, client_encoding="utf8") as connection:
        return schema.install(connection, follow_table_grants=follow_table_grants)
