"""What Spark raises comes out as one message."""

import pytest

from spanmq.errors import ExtraNotInstalledError, MessagesLostError, PipelineError
from spanmq_spark.cause import cause_of

NOT_FOUND = """An error occurred while calling o32.load.
: org.apache.spark.SparkClassNotFoundException: [DATA_SOURCE_NOT_FOUND] Failed to find the data source: {}. Make sure \
the provider name is correct and the package is properly registered and compatible with your Spark version."""


def test_python_without_spanmq_is_named_as_the_cause() -> None:
    error = cause_of(NOT_FOUND.format("spanmq"))
    assert isinstance(error, ExtraNotInstalledError)
    assert "Set PYSPARK_PYTHON" in str(error)
    assert type(cause_of(NOT_FOUND.format("spanmqq"))) is PipelineError


@pytest.mark.parametrize("detail", [None, "batches up to 7 are settled"])
def test_error_of_a_task_keeps_its_detail_and_hint(detail: str | None) -> None:
    error = MessagesLostError("messages are gone", detail=detail, hint="use failOnDataLoss=false")
    found = cause_of(
        f"Traceback\n  line 1\nspanmq.errors.MessagesLostError: {error}\n\n\tat org.apache.spark\n"
    )
    assert type(found) is MessagesLostError
    assert (str(found), found.detail, found.hint) == (str(error), error.detail, error.hint)
