"""Write the version of spanmq into what the other distributions require; `--check` only compares, for CI."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
REQUIRED = re.compile(r'("spanmq(?:\[[\w,]+\])?==)[^"]*"')


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only; exit with 1 if a version differs")
    check = parser.parse_args().check
    source = (ROOT / "src/spanmq/version.py").read_text("utf-8")
    [version] = re.findall(r'^__version__ = "(.*)"$', source, re.MULTILINE)
    stale = 0
    for path in sorted(ROOT.glob("*/pyproject.toml")):
        written = path.read_text("utf-8")
        text, count = REQUIRED.subn(rf'\g<1>{version}"', written)
        if not count:
            print(f"{path.relative_to(ROOT)} requires no version of spanmq", file=sys.stderr)
            return 1
        if text != written and check:
            print(f"{path.relative_to(ROOT)} requires another version than {version}", file=sys.stderr)
            stale = 1
        elif text != written:
            path.write_text(text, "utf-8")
    return stale


if __name__ == "__main__":
    sys.exit(main())
