"""The fixtures of service/tests/dashboard."""

from service.tests.dashboard.conftest import (
    busy,
    chromium,
    filled,
    guarded,
    scene_database,
    scene_template,
    tokens,
)

__all__ = ["busy", "chromium", "filled", "guarded", "scene_database", "scene_template", "tokens"]
