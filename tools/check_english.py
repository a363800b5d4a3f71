"""Find words and patterns that are not plain English; prints each place, exits with 1 if there are too many.

Reads docs, README, CONTRIBUTING, the texts in Python (docstrings, comments, strings), SQL comments and templates.
`--count` prints only how many there are in each part, and the places of a part that has too many.
"""

from __future__ import annotations

import argparse
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
# Pattern, and what to write in its place.
PATTERNS = {
    r"\b[Ww]ho(ever)? (is|are|was|may|can|has|have)\b": "the caller, a waiting receiver, the role that …",
    r"\b[Ww]ho(ever)? (calls?|waits?|sends?|asks?|makes?|gives?|takes?|looks?|comes?|keeps?)\b": "the same",
    r"(?<![Tt]here )\b(is|are|was|were) no (?!longer\b|more\b|other\b)[a-z]": "is not a …, does not exist",
    r"^[ \t]*(?:[-*#>]+ )?(Of|What|Who) [a-z]": "subject first",
    r"\b(his(?!\[)|him|he)\b": "it, the worker, the caller",
    # Quoted it is a Unix user.
    r"(?<![`\"])\b(nobody|somebody|anybody)(?!\.)\b": "no session, a role, any caller",
    r"\bmend(s|ed|ing)?\b": "fix, repair",
    r"\b(keeps? house|housekeeping)\b": "maintenance",
    r"\bfor ?ever\b": "indefinitely",
    r"\bowed\b": "target",
    r"\b(in|at) work\b": "in flight, being processed",
    r"\bso (many|long) (messages?|seconds?|ids|rows|of)\b": "up to N, for N seconds",
    r"\b(falls?|fell) due\b": "becomes due",
    r"\b(gives?|given|gave|giving) (back|up)\b": "return, release, abandon",
    r"\b(puts?|brings?) (it |them |one |this |these |what \w+ |messages? )?back\b": "redrive, restore",
    r"\bcron texts?\b": "cron expression",
    r"\b(there is none|there are none)\b": "does not exist",
    r"\bis there\b(?! a\b| an\b| any)": "exists",
    r"\bthe machine was busy\b": "under load",
    r"\blook-ups?\b": "lookup",
    r"\b(tells|told|tell) (of|who|whether|what|how|the)\b": "report, show",
    r"\bmeant by none\b": "matches none",
}
# Only in src.
IN_SOURCE = {
    r"\b[Ww]hoever\b": "the caller, a transaction that …",
    r"\b(for|those|of|by) who\b(?! is\b)": "the caller, a session that …",
    r"\bstands? (in|at|behind|there|where|before|above)\b": "is in, is stored in, precedes",
    r"\bso (many|long)\b": "up to N, for N seconds",
    r"\b(ran|run|runs) out\b": "expired",
    r"\bto be had\b": "available",
    r"\bat this instant\b": "now; locked by another transaction",
}
# How many a part may have. These only shrink.
LIMITS = {"docs": 0, "src py": 0, "src sql": 0, "src html": 0}
SOURCE = [(re.compile(pattern), plain) for pattern, plain in IN_SOURCE.items()]
COMPILED = [(re.compile(pattern, re.MULTILINE), plain) for pattern, plain in PATTERNS.items()]
FIRST_WORDS = re.compile(r'"""(Give|Tell|Let|Say|Know)s? ')


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield what a person reads of a file: its first line and the text."""
    text = path.read_text("utf-8")
    if path.suffix == ".py":
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in (tokenize.COMMENT, tokenize.STRING):
                yield token.start[0], token.string
    elif path.suffix == ".sql":
        for number, line in enumerate(text.splitlines(), 1):
            if "--" in line:
                yield number, line[line.index("--") + 2 :]
    elif path.suffix == ".html":
        yield (
            1,
            re.sub(
                r"\{[{%#].*?[}%#]\}|<[^>]*>", lambda tag: re.sub(r"[^\n]", " ", tag[0]), text, flags=re.DOTALL
            ),
        )
    else:
        # Code blocks and code in a line are not prose.
        prose = re.sub(
            r"```.*?```|`[^`\n]*`", lambda code: re.sub(r"[^\n]", "x", code[0]), text, flags=re.DOTALL
        )
        yield 1, re.sub(r"^ {4}.*$", "", prose, flags=re.MULTILINE)


def problems(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield line, words, and what to write in their place."""
    for start, text in texts(path):
        if FIRST_WORDS.match(text):
            yield start, text[3:40], "Return, Report, Allow, …"
        for pattern, plain in COMPILED if path.suffix == ".md" else COMPILED + SOURCE:
            for found in pattern.finditer(text):
                yield start + text[: found.start()].count("\n"), found[0].strip()[:60], plain


def files() -> Iterator[tuple[str, Path]]:
    """Yield each file that is read, with the part that it belongs to."""
    for name in ("README.md", "CONTRIBUTING.md"):
        yield "docs", ROOT / name
    generated = "<!-- Made by tools/"
    for path in sorted((ROOT / "docs").rglob("*.md")):
        if not path.read_text("utf-8").startswith(generated):
            yield "docs", path
    for path in sorted((ROOT / "src").rglob("*")):
        if path.suffix in (".py", ".sql", ".html"):
            yield f"src {path.suffix[1:]}", path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", action="store_true", help="only the numbers")
    parser.add_argument("--part", help="docs, 'src py', 'src sql' or 'src html'; default: all")
    options = parser.parse_args()
    found: dict[str, list[str]] = {part: [] for part in LIMITS if options.part in (None, part)}
    for part, path in files():
        if part in found:
            place = path.relative_to(ROOT)
            found[part] += [
                f"{place}:{line}: {words!r}: write: {plain}" for line, words, plain in problems(path)
            ]
    for part, lines in found.items():
        if not options.count or len(lines) > LIMITS[part]:
            print("".join(f"{line}\n" for line in lines), end="")
        print(f"{part}: {len(lines)}, limit {LIMITS[part]}", file=sys.stderr)
    return any(len(lines) > LIMITS[part] for part, lines in found.items())


if __name__ == "__main__":
    sys.exit(main())
