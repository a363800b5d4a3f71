"""As many open files as the limits of a service need: a connection is one, and shells give a thousand."""

from __future__ import annotations

import logging
import resource
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from spanmq.service.settings import Settings

logger = logging.getLogger("spanmq.service")

# Beside connections at work or waiting: those that are kept and idle, the database's, files.
OTHERS: Final = 1_000


def allow_open_files(settings: Settings) -> None:
    """Raise this process's own limit; says so in the log where the system's is lower."""
    wanted = (
        2 * settings.requests_max
        + settings.anonymous_max
        + settings.waiting_max
        + settings.pool_size
        + OTHERS
    )
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most < wanted:
        logger.warning("open_files_few open_files_max=%s needed=%s", most, wanted)
