"""docs/guides/client.md: its programs run, and it names every method and parameter; other pages' examples."""

import inspect
import pydoc
import re
from typing import Any

import pytest
from psycopg import Connection
from tests.documented import DOCS, programs, run_programs

from spanmq.client import AsyncClient, Client
from spanmq.client._sync.admin import Admin
from spanmq.client.namespace import Namespace

WORDS = set(re.findall(r"\w+", (DOCS / "guides/client.md").read_text("utf-8")))


def test_programs_run_and_print_what_they_say(
    empty_database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run_programs("guides/client", {"dsn": empty_database})
    assert capsys.readouterr().out == "{'order': 17} 1\n"


def test_every_method_is_named() -> None:
    methods = {name for name in vars(Client) if not name.startswith("_")}
    assert methods - WORDS == set()


def test_every_parameter_of_a_client_is_named() -> None:
    parameters = set(inspect.signature(Client).parameters)
    assert parameters - WORDS == set()


def test_first_example_of_shards_runs(database: str) -> None:
    program = programs("guides/shards")[0]
    assert "postgresql://localhost/shop" in program
    scope: dict[str, Any] = {}
    exec(program.replace("postgresql://localhost/shop", database), scope)
    assert scope["orders"].metrics().length == 0
    scope["client"].close()


@pytest.mark.parametrize("page", ["subscriptions", "replay"])
def test_example_runs(database: str, page: str) -> None:
    run_programs(f"guides/{page}", {"dsn": database})


def test_function_of_the_page_for_contributors_runs(connection: Connection[Any]) -> None:
    page = (DOCS.parent / "CONTRIBUTING.md").read_text("utf-8")
    [statement] = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    for program in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        compile(program, "CONTRIBUTING.md", "exec")
    connection.execute("select pgmq.create('orders'), pgmq.send('orders', '1')")
    connection.execute(statement)
    touch = "select spanmq_call.touch('orders', lease_id, msg_id) from spanmq.receive('orders')"
    assert connection.execute(touch).fetchall() == [(True,)]


@pytest.mark.parametrize("kind", [Client, AsyncClient, Admin])
def test_help_of_a_client_shows_its_namespaces(kind: type) -> None:
    text = pydoc.plain(pydoc.render_doc(kind))
    parts = {name: part for name, part in vars(kind).items() if isinstance(part, Namespace)}
    assert len(parts) >= 6
    assert parts.keys() <= set(dir(kind))
    for name, part in parts.items():
        described = text[text.index(f"\n |  {name}\n") :].split("\n |  \n |  ")[0].partition("_" * 20)[0]
        methods = {each for each in vars(part.kind) if not each.startswith("_")}
        assert methods - set(re.findall(r"\w+", described)) == set()
