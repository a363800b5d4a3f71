"""Generate the synchronous twins of asynchronous modules and tests; `--check` only compares, for CI.

The twins of modules are committed. Those of tests are not: every run of the tests writes them, with `--tests`, and
`--check` does. A rule that no longer matches anywhere is an error: it hides a rename.
"""

from __future__ import annotations

import argparse
import difflib
import re
import subprocess
import sys
import tempfile
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


MODULES = "src/spanmq/client/_async"
TESTS = "tests/client/_async"


def twins(folder: str) -> Iterator[tuple[Path, Path]]:
    """Yield each file of a folder `_async` and its twin in the folder `_sync` beside it."""
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


def is_older(twin: Path, source: Path) -> bool:
    """Return whether a twin is missing, or older than its source or the rules."""
    changed = max(source.stat().st_mtime_ns, Path(__file__).stat().st_mtime_ns)
    return not twin.exists() or twin.stat().st_mtime_ns <= changed


def write(twin: Path, text: str) -> None:
    """Write a twin at once: other programs may read it."""
    twin.parent.mkdir(exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=twin.parent, suffix=".new", delete=False) as new:
        new.write(text)
    Path(new.name).replace(twin)


def generate_tests(used: set[str], *, changed_only: bool) -> None:
    """Write the twins of the tests, and remove those without a source."""
    sources = dict(twins(TESTS))
    for left in set((ROOT / TESTS).with_name("_sync").glob("*.py")) - set(sources.values()):
        left.unlink()
    for source, twin in sources.items():
        if not changed_only or is_older(twin, source):
            write(twin, generate(source, twin, used))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="compare modules only; exit with 1 if a twin is stale"
    )
    parser.add_argument(
        "--tests", action="store_true", help="write the twins of the tests that have changed, nothing else"
    )
    arguments = parser.parse_args()
    used: set[str] = set()
    generate_tests(used, changed_only=arguments.tests)
    if arguments.tests:
        return 0
    stale = False
    for source, twin in twins(MODULES):
        text = generate(source, twin, used)
        committed = twin.read_text() if twin.exists() else ""
        if text == committed:
            continue
        stale = True
        name = twin.relative_to(ROOT).as_posix()
        if arguments.check:
            lines = committed.splitlines(keepends=True), text.splitlines(keepends=True)
            sys.stdout.writelines(
                difflib.unified_diff(*lines, f"{name} as committed", f"{name} as generated")
            )
        else:
            write(twin, text)
    if unused := RULES.keys() - used:
        sys.stderr.write(f"rules that match nothing: {', '.join(sorted(unused))}\n")
        return 1
    return int(stale and arguments.check)


if __name__ == "__main__":
    sys.exit(main())
