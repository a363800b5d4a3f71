"""Check the length and the sentences of each page: `python tools/check_docs.py` prints the words of each.

A page has a limit of words, and a link in the index. A sentence has a noun as its subject, so it begins neither with
"What" nor with "That of".
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"
PAGE_WORDS_MAX = 2_500
# A page with this mark in its first line is read by looking something up, not from end to end.
GENERATED = "<!-- Made by tools/"
BLOCK = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
# Where a sentence may begin: a line of its own, an item, a cell of a table, or after another sentence.
BEGINNING = r"(?:^(?:\s*[-#]+ |\s*\d+\. )?|[.:?!] |\| )\**"
# "Of course" begins a sentence, and a question may.
NO_SUBJECT = re.compile(
    rf"{BEGINNING}((?:What|Who|That of|Those of|Of(?! course)) [^.?!|]*)(?:[.!|:]|$)", re.MULTILINE
)


def pages() -> dict[str, str]:
    """Return the text of each page, by its name."""
    return {str(path.relative_to(DOCS)): path.read_text("utf-8") for path in sorted(DOCS.rglob("*.md"))}


def too_long(words: dict[str, int]) -> list[str]:
    """Return the pages that exceed the limit, a line each."""
    return [
        f"{name}: {count} words, limit {PAGE_WORDS_MAX}"
        for name, count in words.items()
        if count > PAGE_WORDS_MAX
    ]


def not_in_index(texts: dict[str, str]) -> list[str]:
    """Return the pages to which the index has no link, a line each."""
    return [
        f"{name}: index.md has no link to it"
        for name in texts.keys() - {"index.md"}
        if f"]({name}" not in texts["index.md"]
    ]


def without_subject(name: str, text: str) -> list[str]:
    """Return the sentences of a page that begin without a noun, a line each."""
    # A paragraph is wrapped, and its sentences begin anywhere in a line.
    prose = re.sub(r"(?<=\S)\n(?=\w)", " ", BLOCK.sub("", text))
    return [
        f"{name}: a noun as the subject, please: {sentence[:60]}" for sentence in NO_SUBJECT.findall(prose)
    ]


def main() -> int:
    texts = pages()
    words = {name: len(text.split()) for name, text in texts.items() if not text.startswith(GENERATED)}
    if "--quiet" not in sys.argv:
        for name, count in words.items():
            print(f"{count:6} {name}")
        print(f"{sum(words.values()):6} in all")
    problems = too_long(words) + not_in_index(texts)
    for name, text in texts.items():
        problems += without_subject(name, text)
    for problem in problems:
        print(problem, file=sys.stderr)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
