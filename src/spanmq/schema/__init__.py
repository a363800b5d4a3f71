"""The schema in a database: install, upgrade, verify and remove it, and take over PGMQ's queues."""

from spanmq.schema.extension import register_extension, write_extension
from spanmq.schema.manager import (
    Difference,
    Holding,
    Installed,
    State,
    install,
    sql,
    state,
    uninstall,
    upgrade,
    verify,
)

__all__ = [
    "Difference",
    "Holding",
    "Installed",
    "State",
    "install",
    "register_extension",
    "sql",
    "state",
    "uninstall",
    "upgrade",
    "verify",
    "write_extension",
]
