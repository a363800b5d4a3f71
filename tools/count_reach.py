"""Count the SQL functions that a call may reach: `python tools/count_reach.py` prints them for each everyday verb.

From the sources: a function reaches those that its text names with their schema, other than in a comment or a string.
Functions of one name count once.
"""

import re
import sys
from pathlib import Path

FUNCTIONS = Path(__file__).parent.parent / "src/spanmq/sql/functions"
# A message that is sent, read again after an error and a dead letter, and settled.
LIFE = ("send", "receive", "extend", "nack", "redrive", "ack")
VERBS = ("send", "send_batch", "read", "receive", "delete", "archive", "ack")
_FUNCTION = re.compile(
    r"create or replace function ((?:spanmq|pgmq)\w*\.\w+)\((.*?)(?=^create or replace |\Z)",
    re.DOTALL | re.MULTILINE,
)
_NOISE = re.compile(r"--[^\n]*|'(?:[^']|'')*'")
_CALL = re.compile(r"\b((?:spanmq|pgmq)\w*\.\w+)\s*\(")


def calls() -> dict[str, set[str]]:
    """Return for each function the functions that its text names."""
    named: dict[str, set[str]] = {}
    for file in sorted(FUNCTIONS.rglob("*.sql")):
        for name, text in _FUNCTION.findall(file.read_text()):
            named.setdefault(name, set()).update(_CALL.findall(_NOISE.sub("", text)))
    return {name: called & named.keys() for name, called in named.items()}


def reached(named: dict[str, set[str]], *starts: str) -> set[str]:
    """Return the functions that these reach, themselves included."""
    functions: set[str] = set()
    new = set(starts)
    while new:
        functions |= new
        new = {called for name in new for called in named[name]} - functions
    return functions


def main() -> int:
    """Print a line for each verb and one for a message's life; with names of verbs, the functions that they reach."""
    named = calls()
    for verb in VERBS:
        print(f"{len(reached(named, f'spanmq_call.{verb}')):4} {verb}")
    print(f"{len(reached(named, *(f'spanmq_call.{verb}' for verb in LIFE))):4} {', '.join(LIFE)}")
    for verb in sys.argv[1:]:
        print("\n".join(sorted(reached(named, f"spanmq_call.{verb}"))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
