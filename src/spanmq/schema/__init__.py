"""The schema in a database: install, upgrade, verify and remove it, and take over PGMQ's queues."""

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
    "sql",
    "state",
    "uninstall",
    "upgrade",
    "verify",
]
