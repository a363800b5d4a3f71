"""Check the length of the docs: `python tools/check_docs.py` prints the words of each page and what is too long."""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"
WORDS_MAX = 50_000
PAGE_WORDS_MAX = 2_500
# A page with this mark in its first line is read by looking something up, not from end to end.
GENERATED = "<!-- Made by tools/"


def count_words() -> dict[str, int]:
    """Return the words of each page that is not generated."""
    texts = {str(path.relative_to(DOCS)): path.read_text("utf-8") for path in sorted(DOCS.rglob("*.md"))}
    return {name: len(text.split()) for name, text in texts.items() if not text.startswith(GENERATED)}


def too_long(words: dict[str, int]) -> list[str]:
    """Return what exceeds its limit."""
    pages = [
        f"{name}: {count} words, limit {PAGE_WORDS_MAX}"
        for name, count in words.items()
        if count > PAGE_WORDS_MAX
    ]
    total = sum(words.values())
    return pages + [f"docs: {total} words, limit {WORDS_MAX}"] * (total > WORDS_MAX)


def main() -> int:
    words = count_words()
    if "--quiet" not in sys.argv:
        for name, count in words.items():
            print(f"{count:6} {name}")
        print(f"{sum(words.values()):6} in all")
    for problem in too_long(words):
        print(problem, file=sys.stderr)
    return bool(too_long(words))


if __name__ == "__main__":
    sys.exit(main())
