"""The fixtures of tests/worker."""

from tests.worker.conftest import dsns, orders, quick_looks

__all__ = ["dsns", "orders", "quick_looks"]
