"""The database of a client that is given none."""

import os


def default_dsn() -> str:
    """Return SPANMQ_DSN, or else the DSN of the user's embedded server, with the schema in it.

    That server runs until this process ends, or as long as another program uses it.
    """
    if dsn := os.environ.get("SPANMQ_DSN"):
        return dsn
    from spanmq.embedded.ready import ready

    return ready().dsn
