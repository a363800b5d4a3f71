"""What dead letters died of: their errors without what differs from message to message."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from spanmq.model import DeadLetter
from spanmq.spark.jobs.fingerprint import DIFFERENT, LENGTH, regex_of

_FIRST_LINE = re.compile(r"\s*([^\r\n]*)")


@dataclass(slots=True)
class Cause:
    """Dead letters that died of the same."""

    category: str
    error_class: str | None
    pattern: str
    count: int = 0

    @property
    def error_regex(self) -> str | None:
        """Return a regular expression that matches their errors."""
        return f"^\\s*{regex_of(self.pattern)}" if self.pattern else None


def causes_of(letters: Iterable[DeadLetter]) -> list[Cause]:
    """Group dead letters by category, class and error, those first of which there are most."""
    found: dict[tuple[str, str | None, str], Cause] = {}
    for letter in letters:
        pattern = pattern_of(letter.error or "")
        key = (letter.category, letter.error_class, pattern)
        found.setdefault(key, Cause(*key)).count += 1
    return sorted(found.values(), key=lambda each: -each.count)


def pattern_of(error: str) -> str:
    """Return the first line of an error, with placeholders for the variable parts."""
    match = _FIRST_LINE.match(error[:LENGTH])
    line = match[1] if match else ""
    for different, word in DIFFERENT:
        line = re.sub(different, word, line)
    return line.strip()
