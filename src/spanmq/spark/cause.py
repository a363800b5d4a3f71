"""What Spark raises, as one message: the cause, not the stacks of three machines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from spanmq.errors import PipelineError, SpanmqError


@contextmanager
def clear_errors() -> Iterator[None]:
    """Turn an error of Spark into a PipelineError; with SPANMQ_TRACE set it stays what it is."""
    try:
        yield
    except SpanmqError:
        raise
    except Exception as error:
        kinds = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
        if not kinds & {"pyspark", "py4j"} or os.environ.get("SPANMQ_TRACE"):
            raise
        raise PipelineError(cause_of(str(error)), hint="SPANMQ_TRACE=1 shows all of it.") from error


def cause_of(text: str) -> str:
    """Find our own error in the text of Spark's, or take its first line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in reversed(lines):
        name, colon, message = line.partition(": ")
        if colon and name.startswith("spanmq.errors."):
            return message
    return lines[0] if lines else "Spark failed without a word"
