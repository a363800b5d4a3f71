"""What Spark raises comes out as one message."""

from spanmq.errors import ExtraNotInstalledError, PipelineError
from spanmq.spark.cause import cause_of

NOT_FOUND = """An error occurred while calling o32.load.
: org.apache.spark.SparkClassNotFoundException: [DATA_SOURCE_NOT_FOUND] Failed to find the data source: {}. Make sure \
the provider name is correct and the package is properly registered and compatible with your Spark version."""


def test_python_without_spanmq_is_named_as_the_cause() -> None:
    error = cause_of(NOT_FOUND.format("spanmq"))
    assert isinstance(error, ExtraNotInstalledError)
    assert "Set PYSPARK_PYTHON" in str(error)
    assert type(cause_of(NOT_FOUND.format("spanmqq"))) is PipelineError
