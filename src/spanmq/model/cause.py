"""What dead letters died of: their errors without what differs from message to message."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from spanmq.model.dead_letter import DeadLetter

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
