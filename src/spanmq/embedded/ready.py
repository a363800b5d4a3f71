"""The server that all programs of a user share, ready for messages."""

import psycopg

from spanmq import schema
from spanmq.embedded import EmbeddedServer, start


def ready() -> EmbeddedServer:
    """Join the user's own server, and install the schema where the database has none. Raises EmbeddedError."""
    server = start()
    with psycopg.connect(server.dsn, autocommit=True, client_encoding="utf8") as connection:
        if schema.state(connection).holding is schema.Holding.NOTHING:
            schema.install(connection)
    return server
