"""Every line of the log has one shape, whoever wrote it and whatever it says."""

import logging
import re

import pytest

from spanmq.cli.log_lines import OneLine

LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ [\w.]+ (\w+|\w+=.+)( \w+=.+)*")


def line_of(name: str, text: str, *, is_error: bool = False, on_terminal: bool = False) -> str:
    failed = None
    if is_error:
        try:
            raise ValueError("first\nsecond")
        except ValueError as error:
            failed = type(error), error, error.__traceback__
    return OneLine(on_terminal=on_terminal).format(
        logging.LogRecord(name, logging.WARNING, "", 0, text, (), failed)
    )


@pytest.mark.parametrize(
    ("name", "text", "is_error", "ends"),
    [
        ("spanmq.service", "service_started address=x", False, "spanmq.service service_started address=x"),
        ("spanmq", "maintenance_failed error=a\nb", False, r"maintenance_failed error=a\nb"),
        (
            *("spanmq.worker", "message_settled error=a\nTraceback (most recent call last):\n  b\n", False),
            r"message_settled error=a traceback='Traceback (most recent call last):\n  b'",
        ),
        ("psycopg.pool", "error connecting:\n\ta", False, r"message='error connecting:\n\ta'"),
        ("uvicorn.error", "Exception in ASGI application\n", True, r"ValueError: first\nsecond'"),
        ("spanmq.service", "request_broke method=GET", True, r"ValueError: first\nsecond'"),
    ],
    ids=["event", "event of two lines", "failure", "pool", "uvicorn", "fault"],
)
def test_record_is_one_line(name: str, text: str, is_error: bool, ends: str) -> None:
    line = line_of(name, text, is_error=is_error)
    assert LINE.fullmatch(line), line
    assert line.endswith(ends)
    assert (" traceback='Traceback (most" in line) == (is_error or "Traceback" in text)


@pytest.mark.parametrize("is_error", [False, True], ids=["of a message", "of the program"])
def test_traceback_is_lines_on_a_terminal(*, is_error: bool) -> None:
    text = "message_settled error=\x1b[2J"
    if not is_error:
        text += "\nTraceback (most recent call last):\n  b\nValueError: first\nsecond\x1b"
    first, *more = line_of("spanmq.worker", text, is_error=is_error, on_terminal=True).splitlines()
    assert first.endswith("spanmq.worker message_settled error=\\x1b[2J")
    assert more[0] == "    Traceback (most recent call last):"
    assert more[-2:] == ["    ValueError: first", "    second" + ("" if is_error else "\\x1b")]
