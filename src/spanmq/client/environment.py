"""The database of a client without a DSN."""

import os


def default_dsn() -> str:
    """Return SPANMQ_DSN, or else the DSN of the user's embedded server, with the schema in it.

    That server runs until this process ends, or as long as another program uses it. Raises EmbeddedError.
    """
    if dsn := os.environ.get("SPANMQ_DSN"):
        return dsn
    import psycopg

    from spanmq import embedded, schema

    server = embedded.start()
    with psycopg.connect(server.dsn, autocommit=True, client_encoding="utf8") as connection:
        if schema.state(connection).holding is schema.Holding.NOTHING:
            schema.install(connection)
    return server.dsn
