"""The cause of a failure: its error without what differs from message to message."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Column

# The length of an error that is examined, the same as for rules of categories.
LENGTH: Final = 2_000
PATTERN_MAX: Final = 500
# The variable parts, in this order, and their placeholders. For regular expressions of Java and Python.
DIFFERENT: Final = (
    (r"(?<!\w)'[^'\n]*'(?!\w)|\"[^\"\n]*\"", "<text>"),
    (r"(?i)\b[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}\b", "<id>"),
    (r"(?i)\b0x[0-9a-f]+\b", "<id>"),
    (r"(?i)\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\b", "<id>"),
    (r"\d+(\.\d+)*", "<number>"),
    (r"\s+", " "),
)
_MEANS: Final = {"<text>": ".*", "<id>": "[0-9a-fx-]+", "<number>": "[0-9.]+"}


def pattern(error: Column) -> Column:
    """Return the first line of an error, with placeholders for the variable parts."""
    from pyspark.sql import functions as f

    text = f.regexp_extract(f.substring(f.coalesce(error, f.lit("")), 1, LENGTH), r"\s*([^\r\n]*)", 1)
    for different, word in DIFFERENT:
        text = f.regexp_replace(text, different, word)
    return f.trim(text)


def fingerprint(error_class: Column, pattern: Column) -> Column:
    """Return a short name for a class and a pattern."""
    from pyspark.sql import functions as f

    both = f.concat_ws("\n", f.coalesce(error_class, f.lit("")), pattern)
    return f.substring(f.md5(both.cast("binary")), 1, 10)


def regex_of(pattern: str) -> str:
    """Return a regular expression that matches the errors of a pattern, for a rule of categories."""
    pieces = re.split("(" + "|".join(_MEANS) + ")", pattern)
    found = ""
    for piece in pieces:
        more = _MEANS.get(piece) or re.sub(r"([.^$*+?()\[\]{}|\\])", r"\\\1", piece)
        if len(found) + len(more) > PATTERN_MAX:
            break
        found += more
    return found
