"""Hints: what to do about an error. The server names calls in SQL; Python and the command line name their own."""

import re
import shlex
from collections.abc import Callable
from typing import Final

POOLER: Final = (
    "If the DSN leads to a pooler in transaction mode, such as PgBouncer, set pooler=True (--pooler)"
)
# A statement was prepared in another session than the one that a pooler lends now.
_OF_POOLERS: Final = ("42P05", "26000")  # duplicate_prepared_statement, invalid_sql_statement_name
LOST: Final = "Check before you repeat a send; receiving and settling again is safe."
LOST_UNDONE: Final = "Run the whole transaction again."
# By the SQLSTATE with which the server ended a session.
OF_ENDED_SESSION: Final[dict[str, str]] = {
    "25P03": (
        "The transaction waited longer than idle_in_transaction_session_timeout for its next statement: call other"
        " services outside of it, or set timeouts=Timeouts(idle_in_transaction=…)."
    ),
    "25P04": "The transaction took longer than transaction_timeout of the server, database or role.",
    "57P01": "An administrator ended the session, or the server is shutting down: run the whole transaction again.",
}
# By the code of an error.
_OF_CODE: Final[dict[str, str]] = {
    "queue_not_found": (
        "client.queues.create(name) creates it; for tasks: tasks.create_queues(), Tasks(…, create=True) or"
        " spanmq worker --create-queues."
    ),
    "schema_missing": "spanmq schema install, or client.install(), puts the schema into this database.",
    "transaction_conflict": "Nothing was changed: call again. In your own transaction, roll back and run it all again.",
    "transaction_aborted": "Roll back, then repeat what you need.",
    "missing_privilege": "Grant it with spanmq grant or client.admin.grants: see the page Roles and privileges.",
    "server_read_only": (
        "Connect to the primary. A DSN that names all servers (postgresql://a,b/…) finds the one that is writable, at"
        " each new connection."
    ),
}

# A literal of SQL, as format's %L writes it.
_LITERAL: Final = "'((?:[^']|'')*)'"
# The calls that hints of the server name: in SQL, in Python, and as a command.
_CALLS: Final[tuple[tuple[str, str, str], ...]] = (
    (
        rf"(?:select )spanmq\.grant_queue\({', '.join([_LITERAL] * 3)}\)",
        "client.admin.grants.create({}, {}, {})",
        "spanmq grant create {} {} {}",
    ),
    (
        rf"(?:select )spanmq\.grant_all\({', '.join([_LITERAL] * 2)}\)",
        "client.admin.grants.all({}, {})",
        "spanmq grant all {} {}",
    ),
    (
        rf"(?:select \* from )spanmq\.get_schema\({_LITERAL}\)",
        "client.queues.get_schema({})",
        "spanmq queue schema {}",
    ),
    (rf"(?:select )pgmq\.create\({_LITERAL}\)", "client.queues.create({})", "spanmq queue create {}"),
    (r"pgmq\.list_queues\(\)", "client.queues.list()", "spanmq queue list"),
)


def hint_for(code: str, sqlstate: str) -> str | None:
    """Return the hint of an error for which the server has none."""
    return POOLER if sqlstate in _OF_POOLERS else _OF_CODE.get(code)


def in_python(hint: str) -> str:
    """Return a hint of the server with the client's calls in place of those in SQL."""
    return _translated(hint, 1, repr)


def as_commands(hint: str) -> str:
    """Return a hint of the server with commands in place of the calls in SQL."""
    return _translated(hint, 2, shlex.quote)


def _translated(hint: str, form: int, quote: Callable[[str], str]) -> str:
    """Return a hint with its calls in the form of a column of _CALLS."""
    for call in _CALLS:

        def written(match: re.Match[str], call: tuple[str, str, str] = call) -> str:
            return call[form].format(*(quote(value.replace("''", "'")) for value in match.groups()))

        hint = re.sub(call[0], written, hint)
    return hint
