"""The fixtures of tests/service."""

from tests.service.conftest import http, orders, queue, service_database, shared
from tests.service.sqs.conftest import key, keyed

__all__ = ["http", "key", "keyed", "orders", "queue", "service_database", "shared"]
