"""The fixtures of tests/worker."""

from tests.worker.conftest import orders, quick_looks

__all__ = ["orders", "quick_looks"]
