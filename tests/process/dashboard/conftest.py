"""The fixtures of tests/dashboard."""

from tests.dashboard.conftest import busy, chromium, filled, scene_template

__all__ = ["busy", "chromium", "filled", "scene_template"]
