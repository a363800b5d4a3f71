"""The parts of which other distributions make their commands: they import no other module of the command line."""

from spanmq.cli.connect import prepared_address
from spanmq.cli.failure import FAILED, INTERRUPTED, say
from spanmq.cli.interrupt import Stop
from spanmq.cli.option import AsJson, Dsn
from spanmq.cli.output import Output, fields, print_table
from spanmq.cli.verbs import Commands

__all__ = [
    "FAILED",
    "INTERRUPTED",
    "AsJson",
    "Commands",
    "Dsn",
    "Output",
    "Stop",
    "fields",
    "prepared_address",
    "print_table",
    "say",
]
