"""An exception of Spark as one message: the cause, without the stacks of three machines."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from spanmq import errors
from spanmq.errors import ExtraNotInstalledError, PipelineError, SpanmqError

__all__ = ["clear_errors"]

_PREFIX = "spanmq.errors."
_CALLING = "An error occurred while calling "


@contextmanager
def clear_errors() -> Iterator[None]:
    """Turn an error of Spark, or of an object store, into ours: the one that a task raised, else a PipelineError.

    With SPANMQ_TRACE set it stays what it is.
    """
    try:
        yield
    except SpanmqError:
        raise
    except Exception as error:
        kinds = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
        if not kinds & {"pyspark", "py4j", "obstore"} or os.environ.get("SPANMQ_TRACE"):
            raise
        raise cause_of(str(error)) from error


def cause_of(text: str) -> SpanmqError:
    """Find our own error in the text of Spark's, with its hint; or take the first line of the text."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for number in range(len(lines) - 1, -1, -1):
        name, colon, message = lines[number].partition(": ")
        if not (colon and name.startswith(_PREFIX)):
            continue
        about: dict[str, str] = {}
        for following in lines[number + 1 :]:
            part, _, words = following.partition(": ")
            if part not in ("detail", "hint"):
                break
            about[part] = words
        kind = getattr(errors, name.removeprefix(_PREFIX), PipelineError)
        return kind(message, **about) if issubclass(kind, SpanmqError) else PipelineError(message, **about)
    if "[DATA_SOURCE_NOT_FOUND]" in text and "data source: spanmq." in text:
        return ExtraNotInstalledError(
            "the Python that Spark plans with has no spanmq",
            extra="spark",
            hint="Set PYSPARK_PYTHON, before Spark starts, to a Python that has it by the same path on each "
            "machine: docs/guides/spark-cluster.md.",
        )
    first = lines[0] if lines else "Spark failed without a word"
    if first.startswith(_CALLING) and len(lines) > 1:
        # What Java says comes a line later, after the name of its class.
        first = re.sub(r"^[: ]*([\w$]+\.)+[\w$]+: ", "", lines[1])
    return PipelineError(first, hint="SPANMQ_TRACE=1 shows all of it.")
