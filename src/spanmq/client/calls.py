"""What the other distributions call SQL functions by, and how they read the rows: their way into the client."""

from spanmq.client import argument
from spanmq.client.argument import Argument, Seconds, optional
from spanmq.client.call import ACTOR, Result, SqlCall, optional_queue_call, queue_call
from spanmq.client.concurrency import forget
from spanmq.client.connection import limit_statements
from spanmq.client.dsn import Timeouts, with_timeouts
from spanmq.client.functions import UNCHANGED, DedupUntil, OnDuplicate, by_lease
from spanmq.client.polling import HEARD_SECONDS, LONGEST_SECONDS, Due, Polling
from spanmq.client.rows import (
    Rows,
    first,
    flag,
    json_value,
    listed,
    made,
    nothing,
    number,
    numbers,
    string,
)
from spanmq.client.secret import PREFIX, hash_of, new_secret
from spanmq.client.silence import ASK_SECONDS, PAUSE_SECONDS_MAX, Question, asked_at
from spanmq.client.single_connection import KeptClient, connect, typed_errors

__all__ = [
    "ACTOR",
    "ASK_SECONDS",
    "HEARD_SECONDS",
    "LONGEST_SECONDS",
    "PAUSE_SECONDS_MAX",
    "PREFIX",
    "UNCHANGED",
    "Argument",
    "DedupUntil",
    "Due",
    "KeptClient",
    "OnDuplicate",
    "Polling",
    "Question",
    "Result",
    "Rows",
    "Seconds",
    "SqlCall",
    "Timeouts",
    "argument",
    "asked_at",
    "by_lease",
    "connect",
    "first",
    "flag",
    "forget",
    "hash_of",
    "json_value",
    "limit_statements",
    "listed",
    "made",
    "new_secret",
    "nothing",
    "number",
    "numbers",
    "optional",
    "optional_queue_call",
    "queue_call",
    "string",
    "typed_errors",
    "with_timeouts",
]
