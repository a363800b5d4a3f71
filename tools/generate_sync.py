"""Generate the synchronous twins of asynchronous modules and tests; `--check` only compares, for CI.

The twins are committed. A rule that no longer matches anywhere is an error: it hides a rename.
"""

from __future__ import annotations

import argparse
import difflib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

BRACKETS = r"[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*"
RULES = {
    r"\bAbstractAsync": "Abstract",
    r"\bAsync(?=[A-Z])": "",
    r"\basync(?=contextmanager\b)": "",
    r"\basync (?=def|with|for)": "",
    r"\bawait ": "",
    r"\b__a(?=enter__|exit__)": "__",
    rf"\bAwaitable\[({BRACKETS})\]": r"\1",
    r"(?<=\w)_async\b": "",
    r"(?<=\.)_async\b": "_sync",
    r"\bin_thread\b": "in_place",
    r"\basynchronous client\b": "synchronous client",
}


def twins() -> Iterator[tuple[Path, Path]]:
    """Yield each file of a folder `_async` and its twin in the folder `_sync` beside it."""
    for folder in ("src/spanmq/client/_async", "tests/client/_async"):
        for path in sorted((ROOT / folder).glob("*.py")):
            if path.name != "__init__.py":
                yield path, path.parents[1] / "_sync" / path.name


def generate(source: Path, twin: Path, used: set[str]) -> str:
    """Return the text of a twin; add the rules that matched to `used`."""
    text = source.read_text()
    for pattern, replacement in RULES.items():
        text, count = re.subn(pattern, replacement, text)
        if count:
            used.add(pattern)
    name = source.relative_to(ROOT).as_posix()
    text = f"# Generated from {name} by tools/generate_sync.py: change that file.\n\n{text}"
    # Names that have become equal or useless leave the imports; lines that have become short are joined.
    text = ruff("check", "--fix-only", "--quiet", "--select", "I,F401,F811", twin=twin, text=text)
    return ruff("format", "--quiet", twin=twin, text=text)


def ruff(*command: str, twin: Path, text: str) -> str:
    program = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(twin), "-"]
    return subprocess.run(program, input=text, capture_output=True, check=True, text=True).stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only; exit with 1 if a twin is stale")
    check = parser.parse_args().check
    used: set[str] = set()
    stale = False
    for source, twin in twins():
        text = generate(source, twin, used)
        committed = twin.read_text() if twin.exists() else ""
        if text == committed:
            continue
        stale = True
        name = twin.relative_to(ROOT).as_posix()
        if check:
            lines = committed.splitlines(keepends=True), text.splitlines(keepends=True)
            sys.stdout.writelines(
                difflib.unified_diff(*lines, f"{name} as committed", f"{name} as generated")
            )
        else:
            twin.parent.mkdir(exist_ok=True)
            twin.write_text(text)
    if unused := RULES.keys() - used:
        sys.stderr.write(f"rules that match nothing: {', '.join(sorted(unused))}\n")
        return 1
    return int(stale and check)


if __name__ == "__main__":
    sys.exit(main())
