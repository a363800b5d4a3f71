"""What a user may meet has its place in the docs: every error, SQLSTATE of ours, and environment variable."""

import re
from pathlib import Path

from spanmq import errors

ROOT = Path(__file__).resolve().parents[2]
WORDS = set(re.findall(r"\w+", "".join(path.read_text("utf-8") for path in (ROOT / "docs").rglob("*.md"))))
# These are for who works on spanmq.
WORDS |= set(re.findall(r"\w+", (ROOT / "CONTRIBUTING.md").read_text("utf-8")))
# Raised and caught within one function.
INNER = {"MQ000"}


def found_in(pattern: str, *suffixes: str) -> set[str]:
    return {
        word
        for path in (ROOT / "src").rglob("*")
        if path.suffix in suffixes
        for word in re.findall(pattern, path.read_text("utf-8"))
    }


def test_every_error_is_documented() -> None:
    kinds = {name for name, kind in vars(errors).items() if isinstance(kind, type) and name.endswith("Error")}
    assert len(kinds) > 40
    assert kinds - WORDS == set()


def test_every_sqlstate_is_documented() -> None:
    states = found_in(r"'(MQ\d\d\d)'", ".sql")
    assert len(states) > 15
    assert states - INNER - WORDS == set()


def test_every_environment_variable_is_documented() -> None:
    variables = found_in(r"\b(SPANMQ_[A-Z_]*[A-Z])\b", ".py")
    assert len(variables) > 5
    assert variables - WORDS == set()


def test_navigation_lists_every_page() -> None:
    listed = re.findall(r"^ +- (\S+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    docs = ROOT / "docs"
    assert sorted(listed) == sorted(str(path.relative_to(docs)) for path in docs.rglob("*.md"))
