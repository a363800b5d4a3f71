"""Causes of dead letters: their errors without the parts that differ from message to message."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from spanmq.model.dead_letter import DeadLetter

# The length of an error that is examined, the same as for rules of categories.
LENGTH: Final = 2_000
PATTERN_MAX: Final = 500
# The variable parts, in this order, and their placeholders. For regular expressions of Java and Python. Numbers of
# status tell causes apart and stay: those of HTTP and SMTP at the beginning, after such a word, or quoted with their
# phrase ('404 Not Found'). They carry a mark, which goes at the end.
_MARK: Final = "\x01"
_QUOTE: Final = "\x02"
DIFFERENT: Final = (
    (r"['\"]([1-5]\d\d [A-Z][A-Za-z ]{1,40})['\"]", rf"{_QUOTE}\1{_QUOTE}"),
    (r"(?<!\w)'[^'\n]*'(?!\w)|\"[^\"\n]*\"", "<text>"),
    (r"(?i)\b[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}\b", "<id>"),
    (r"(?i)\b0x[0-9a-f]+\b", "<id>"),
    (r"(?i)\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\b", "<id>"),
    (
        r"(?i)(status|code|http|error|response)((/\d\.\d)?[ :=(]{1,3})([1-5]\d\d)(?![\d.]*\d)",
        rf"\1\2{_MARK}\4",
    ),
    (rf"(^\W?|{_QUOTE})([1-5]\d\d)(?=[\s:,-])", rf"\1{_MARK}\2"),
    (
        rf"{_MARK}(\d\d\d)([ -]|, b?['\"])([245]\.\d{{1,3}}\.\d{{1,3}})(?![\d.]*\d)",
        rf"{_MARK}\1\2{_MARK}\3",
    ),
    (rf"(?<![\d{_MARK}])(?<!\d\.)\d+(\.\d+)*", "<number>"),
    (_MARK, ""),
    (_QUOTE, "'"),
    (r"\s+", " "),
)
_MEANS: Final = {"<text>": ".*", "<id>": "[0-9a-fx-]+", "<number>": "[0-9.]+"}
_FIRST_LINE = re.compile(r"\s*([^\r\n]*)")


@dataclass(slots=True)
class Cause:
    """Dead letters that died of the same; `example` is the error of one of them, as it is, `last_dead_at`
    when the last one died.
    """

    category: str
    error_class: str | None
    pattern: str
    count: int = 0
    example: str | None = None
    last_dead_at: datetime | None = None

    @property
    def error_regex(self) -> str | None:
        """Return a regular expression that matches their errors."""
        return f"^\\s*{regex_of(self.pattern)}" if self.pattern else None


def causes_of(letters: Iterable[DeadLetter]) -> list[Cause]:
    """Group dead letters by category, class and error, those first of which there are most."""
    causes: dict[tuple[str, str | None, str], Cause] = {}
    for letter in letters:
        pattern = pattern_of(letter.error or "")
        key = (letter.category, letter.error_class, pattern)
        cause = causes.setdefault(key, Cause(*key, example=letter.error))
        cause.count += 1
        cause.last_dead_at = max(cause.last_dead_at or letter.dead_at, letter.dead_at)
    return sorted(causes.values(), key=lambda cause: -cause.count)


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
    regex = ""
    for piece in pieces:
        more = _MEANS.get(piece) or re.sub(r"([.^$*+?()\[\]{}|\\])", r"\\\1", piece)
        if len(regex) + len(more) > PATTERN_MAX:
            break
        regex += more
    return regex
