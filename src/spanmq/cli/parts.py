"""The parts of which other distributions make their commands: they import no other module of the command line."""

from spanmq.cli.connect import address, prepared_address
from spanmq.cli.failure import FAILED, INTERRUPTED, say
from spanmq.cli.interrupt import Stop
from spanmq.cli.log_lines import LogLevel, level_named, logging_lines
from spanmq.cli.option import (
    AsJson,
    Category,
    DryRun,
    Dsn,
    ErrorText,
    Limit,
    MessageIds,
    QueueName,
    ReceiverName,
    SomeQueue,
    Yes,
    confirm,
    time_option,
)
from spanmq.cli.output import Done, Output, fields, number_of, print_table
from spanmq.cli.progress import awaited, is_shown
from spanmq.cli.verbs import Commands

__all__ = [
    "FAILED",
    "INTERRUPTED",
    "AsJson",
    "Category",
    "Commands",
    "Done",
    "DryRun",
    "Dsn",
    "ErrorText",
    "Limit",
    "LogLevel",
    "MessageIds",
    "Output",
    "QueueName",
    "ReceiverName",
    "SomeQueue",
    "Stop",
    "Yes",
    "address",
    "awaited",
    "confirm",
    "fields",
    "is_shown",
    "level_named",
    "logging_lines",
    "number_of",
    "prepared_address",
    "print_table",
    "say",
    "time_option",
]
