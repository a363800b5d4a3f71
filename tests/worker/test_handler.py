"""What is a handler, and what is said about what is none."""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from spanmq.errors import InvalidArgumentError
from spanmq.worker.handler import find, look_at


def plain(message: Any) -> None: ...
async def asynchronous(message: Any) -> None: ...
def two(message: Any, connection: Any) -> None: ...
def optional(message: Any, retries: int = 3) -> None: ...
def named(message: Any, connection: Any = None) -> None: ...
def everything(*arguments: Any) -> None: ...
def three(message: Any, connection: Any, more: Any) -> None: ...
def nothing() -> None: ...
def keyword(message: Any, *, key: str) -> None: ...
def generator(message: Any) -> Any:
    yield message


async def async_generator(message: Any) -> Any:
    yield message


class Callable:
    async def __call__(self, message: Any, connection: Any) -> None: ...
    def method(self, message: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "is_async", "takes_connection"),
    [
        (plain, False, False),
        (asynchronous, True, False),
        (two, False, True),
        (optional, False, False),
        (named, False, True),
        (everything, False, False),
        (Callable(), True, True),
        (Callable().method, False, False),
        (partial(two, connection=None), False, False),
        (partial(three, 1), False, True),
        (partial(asynchronous), True, False),
        (print, False, False),
    ],
)
def test_handler_is_seen_for_what_it_is(function: Any, is_async: bool, takes_connection: bool) -> None:
    found = look_at(function, takes_batches=False)
    assert (found.is_async, found.takes_connection) == (is_async, takes_connection)


@pytest.mark.parametrize(
    "function", [three, nothing, keyword, generator, async_generator, Callable, 5, None, "plain"]
)
def test_what_is_no_handler_is_refused(function: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        look_at(function, takes_batches=False)


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return tmp_path


def test_handler_is_imported_by_its_name(modules: Path) -> None:
    (modules / "good_jobs.py").write_text("class Jobs:\n    @staticmethod\n    def ship(message): ...\n")
    assert find("good_jobs:Jobs.ship").__name__ == "ship"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("good_jobs", "module:function"),
        (":ship", "module:function"),
        ("no_such_jobs:ship", "module 'no_such_jobs' does not exist"),
        ("no_such.jobs:ship", "module 'no_such.jobs' does not exist"),
        ("bad_jobs:ship", "raised ModuleNotFoundError when it was imported: No module named 'no_such_thing'"),
        ("broken_jobs:ship", "raised ZeroDivisionError when it was imported"),
        ("leaving_jobs:ship", "raised SystemExit"),
        ("plain_jobs:no_such", "has no 'no_such'"),
        ("plain_jobs:NUMBR", "Did you mean 'NUMBER'?"),
        ("package_of_jobs.jobs", "package_of_jobs.jobs is a module: name what is in it"),
        ("plain_jobs:NUMBER", "is not callable, it is 5"),
    ],
)
def test_handler_that_can_not_be_had_is_reported_with_the_reason(modules: Path, path: str, text: str) -> None:
    (modules / "bad_jobs.py").write_text("import no_such_thing\n")
    (modules / "broken_jobs.py").write_text("1 / 0\n")
    (modules / "leaving_jobs.py").write_text("raise SystemExit(3)\n")
    (modules / "plain_jobs.py").write_text("NUMBER = 5\n")
    (modules / "package_of_jobs").mkdir()
    (modules / "package_of_jobs" / "jobs.py").write_text("")
    with pytest.raises(InvalidArgumentError, match=text):
        look_at(find(path), takes_batches=False)
