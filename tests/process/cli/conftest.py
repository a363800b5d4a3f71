"""The fixtures of tests/cli."""

from tests.cli.conftest import orders

__all__ = ["orders"]
