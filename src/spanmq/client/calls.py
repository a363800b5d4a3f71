"""What the other distributions call SQL functions by, and how they read the rows: their way into the client."""

from spanmq.client import argument
from spanmq.client.argument import Argument
from spanmq.client.call import Call, Result, queue_call
from spanmq.client.direct import KeptClient, connect, typed_errors
from spanmq.client.dsn import with_timeouts
from spanmq.client.polling import Polling
from spanmq.client.rows import Rows, json_value, nothing, number, numbers, string
from spanmq.client.silence import ASK_SECONDS, PAUSE_SECONDS_MAX, Question, asked_at

__all__ = [
    "ASK_SECONDS",
    "PAUSE_SECONDS_MAX",
    "Argument",
    "Call",
    "KeptClient",
    "Polling",
    "Question",
    "Result",
    "Rows",
    "argument",
    "asked_at",
    "connect",
    "json_value",
    "nothing",
    "number",
    "numbers",
    "queue_call",
    "string",
    "typed_errors",
    "with_timeouts",
]
