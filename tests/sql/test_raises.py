"""What a function raises has a number of its own, and says what to do."""

import re
from pathlib import Path

import spanmq

SQL = Path(spanmq.__file__).parent / "sql"
# A statement in which semicolons may stand within texts.
RAISE = re.compile(r"\braise exception\b(?:[^;']|'(?:[^']|'')*')*;")
# These want a hint, and have a number.
CALL = re.compile(r"\bspanmq_core\.raise_(?:if|as_pgmq)\(")
# Caught where they are raised: nobody reads them.
CAUGHT = ("errcode = 'MQ000'", "errcode = '55P03'")


def texts() -> dict[str, str]:
    folders = ("functions", "manager", "adopt")
    return {
        str(path.relative_to(SQL)): path.read_text("utf-8")
        for each in folders
        for path in (SQL / each).rglob("*.sql")
    }


def test_every_error_has_its_number_and_a_hint() -> None:
    found = [(file, raised) for file, text in texts().items() for raised in RAISE.findall(text)]
    assert len(found) + sum(len(CALL.findall(text)) for text in texts().values()) > 150
    for file, text in found:
        assert re.search(r"\berrcode = ('\w{5}'|\w+)", text), (file, text)
        if not any(each in text for each in CAUGHT):
            assert re.search(r"\bhint = ", text), (file, text)
