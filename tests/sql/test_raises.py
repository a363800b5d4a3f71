"""What a function raises has a number of its own, and says what to do."""

import importlib.resources
import re

SQL = importlib.resources.files("spanmq") / "sql"
# A statement in which semicolons may stand within texts.
RAISE = re.compile(r"\braise exception\b(?:[^;']|'(?:[^']|'')*')*;")
# Caught where they are raised: nobody reads them.
CAUGHT = ("errcode = 'MQ000'", "errcode = '55P03'")


def raises() -> list[tuple[str, str]]:
    return [
        (f"{folder}/{entry.name}", found)
        for folder in ("functions", "manager", "adopt")
        for entry in (SQL / folder).iterdir()
        for found in RAISE.findall(entry.read_text("utf-8"))
    ]


def test_every_error_has_its_number_and_a_hint() -> None:
    found = raises()
    assert len(found) > 150
    for file, text in found:
        assert re.search(r"\berrcode = ('\w{5}'|\w+)", text), (file, text)
        if not any(each in text for each in CAUGHT):
            assert re.search(r"\bhint = ", text), (file, text)
