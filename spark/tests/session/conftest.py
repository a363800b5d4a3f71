"""The tests of a real Spark session; one worker has them all (GROUPS in conftest.py)."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from spark.tests.real_session import read, read_stream, spark

__all__ = ["read", "read_stream", "spark"]
collect_ignore_glob = [] if find_spec("pyspark") else ["*"]


@pytest.fixture(scope="session")
def spark_settings() -> dict[str, str]:
    """Have expressions interpreted: Java code made for a few rows costs more than they; tests/process has it made."""
    return {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Return all of these time: a time-out in a call to the JVM would fail every test after it, too."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(600))
