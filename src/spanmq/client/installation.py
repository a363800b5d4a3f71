"""The schema, installed over a connection of its own."""

from typing import Final

from spanmq import schema
from spanmq.client._sync.pool import Connector
from spanmq.client.dsn import with_timeouts
from spanmq.client.password import Password

# An upgrade may change large tables.
ANSWER_SECONDS: Final = 3600.0


def install_at(dsn: str, *, password: Password | None, follow_table_grants: bool) -> schema.Installed:
    """Install the schema at a DSN, with this password; `follow_table_grants` as `schema.install` has it."""
    address = with_timeouts(dsn, None)
    connector = Connector(address, password=password, pooler=False, answer_seconds=ANSWER_SECONDS)
    with connector.connect() as connection:
        return schema.install(connection, follow_table_grants=follow_table_grants)
