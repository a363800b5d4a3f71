"""The HTTP service: queues for callers without credentials of the database. `spanmq serve` runs it."""

from spanmq.service.app import create_app
from spanmq.service.backend import Backend
from spanmq.service.settings import Settings

__all__ = ["Backend", "Settings", "create_app"]
