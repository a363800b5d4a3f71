"""docs/guides/client.md: its programs run, and it names every method and parameter; other pages' examples."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from spanmq.client import Client

DOCS = Path(__file__).parents[2] / "docs/guides"
TEXT = (DOCS / "client.md").read_text()
WORDS = set(re.findall(r"\w+", TEXT))


def test_programs_run_and_print_what_they_say(
    empty_database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    scope: dict[str, object] = {"dsn": empty_database}
    for number, program in enumerate(re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)):
        exec(compile(program, f"docs/guides/client.md, program {number}", "exec", dont_inherit=True), scope)
    assert capsys.readouterr().out == "{'order': 17} 1\n"


def test_every_method_is_named() -> None:
    methods = {name for name in vars(Client) if not name.startswith("_")}
    assert methods - WORDS == set()


def test_every_parameter_of_a_client_is_named() -> None:
    parameters = set(inspect.signature(Client).parameters)
    assert parameters - WORDS == set()


def test_first_example_of_shards_runs(database: str) -> None:
    program = re.findall(r"```python\n(.*?)```", (DOCS / "shards.md").read_text("utf-8"), re.DOTALL)[0]
    assert "postgresql://localhost/shop" in program
    scope: dict[str, Any] = {}
    exec(program.replace("postgresql://localhost/shop", database), scope)
    assert scope["orders"].metrics().length == 0
    scope["client"].close()


@pytest.mark.parametrize("page", ["subscriptions", "replay"])
def test_example_runs(database: str, page: str) -> None:
    [program] = re.findall(r"```python\n(.*?)```", (DOCS / f"{page}.md").read_text("utf-8"), re.DOTALL)
    exec(program, {"dsn": database})
