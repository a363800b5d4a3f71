"""The cause of a failure: its error without what differs from message to message."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Column

# Of an error only so much is looked at, as rules of categories do.
LENGTH: Final = 2_000
PATTERN_MAX: Final = 500
# What differs, in this order, and what stands for it. For Java's expressions and Python's.
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
    """Give the first line of an error, with a word in place of what differs."""
    from pyspark.sql import functions as f

    text = f.regexp_extract(f.substring(f.coalesce(error, f.lit("")), 1, LENGTH), r"\s*([^\r\n]*)", 1)
    for different, word in DIFFERENT:
        text = f.regexp_replace(text, different, word)
    return f.trim(text)


def fingerprint(error_class: Column, pattern: Column) -> Column:
    """Give a short name for a class and a pattern."""
    from pyspark.sql import functions as f

    both = f.concat_ws("\n", f.coalesce(error_class, f.lit("")), pattern)
    return f.substring(f.md5(both.cast("binary")), 1, 10)


def regex_of(pattern: str) -> str:
    """Give an expression that finds the errors of a pattern, for a rule of categories."""
    pieces = re.split("(" + "|".join(_MEANS) + ")", pattern)
    found = ""
    for piece in pieces:
        more = _MEANS.get(piece) or re.sub(r"([.^$*+?()\[\]{}|\\])", r"\\\1", piece)
        if len(found) + len(more) > PATTERN_MAX:
            break
        found += more
    return found
