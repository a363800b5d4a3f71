"""The reference names everything public, the navigation every page, and no page is too long."""

import ast
import builtins
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from service.tests.route_table import ROUTES
from tests.cli.test_commands import COMMANDS

import spanmq
import spanmq.tasks
from spanmq import doors, errors
from spanmq.client._async import admin
from spanmq_spark.options import NAMES

ROOT = Path(__file__).resolve().parents[2]
# The folders of the sources of all distributions.
SOURCES = [ROOT / "src", *ROOT.glob("*/src")]
WORDS = set(re.findall(r"\w+", "".join(path.read_text("utf-8") for path in (ROOT / "docs").rglob("*.md"))))
# These are for who works on spanmq.
WORDS |= set(re.findall(r"\w+", (ROOT / "CONTRIBUTING.md").read_text("utf-8")))
# Raised and caught within one function.
INNER = {"MQ000"}


def found_in(pattern: str, *suffixes: str) -> set[str]:
    return {
        word
        for folder in SOURCES
        for path in folder.rglob("*")
        if path.suffix in suffixes
        for word in re.findall(pattern, path.read_text("utf-8"))
    }


# Each page of the reference, and what it must name.
PUBLIC = {
    "python": [
        f"::: spanmq.{'tasks.' if name in spanmq.tasks.__all__ else ''}{name}\n"
        for name in spanmq.__all__
        if not name.startswith("Async")
    ],
    "commands": [f"# spanmq {name}\n" for name in COMMANDS],
    "http": [f"`{route.method} {route.path}`" for route in ROUTES],
    "errors": [f"`{name}`" for name in vars(errors) if name.endswith("Error")],
    "spark-options": [f"`{name}`" for name in NAMES],
    "environment": [f"`{name}`" for name in found_in(r"\b(SPANMQ_[A-Z_]*[A-Z])\b", ".py")],
}


@pytest.mark.parametrize("page", PUBLIC)
def test_reference_names_everything_public(page: str) -> None:
    text = (ROOT / "docs/reference" / f"{page}.md").read_text("utf-8")
    assert len(PUBLIC[page]) > 5
    assert [name for name in PUBLIC[page] if name not in text] == []


def public() -> Iterator[tuple[str, Any]]:
    """Yield each callable of the Python reference, and each public method of its classes."""
    page = (ROOT / "docs/reference/python.md").read_text("utf-8")
    for name in re.findall(r"^::: (\S+)", page, re.MULTILINE):
        thing = pkgutil.resolve_name(name)
        # The client makes its namespaces.
        if callable(thing) and not name.startswith("spanmq.client."):
            yield name, thing
        for method, function in inspect.getmembers(thing, inspect.isfunction):
            if inspect.isclass(thing) and not method.startswith("_"):
                yield f"{name}.{method}", function


UPGRADES = (ROOT / "docs/operations/upgrades.md").read_text("utf-8")
PUBLIC_MODULES = set(
    re.findall(r"`(spanmq[\w.]*)`", UPGRADES.partition("## Public Python modules\n")[2].partition("\n## ")[0])
)
# They gather names of other modules, for modules of this package.
GATHERING = {
    "spanmq.client.calls",
    "spanmq.codec",
    "spanmq.client.concurrency",
    "spanmq.cli.parts",
    "spanmq_service.dashboard",
    "spanmq_lab.demo",
}


def exported(path: Path) -> bool:
    """Return whether a module has a list of the names that it exports."""
    return any(
        isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        for node in ast.parse(path.read_text("utf-8")).body
    )


def module_name(path: Path) -> str:
    [folder] = (folder for folder in SOURCES if path.is_relative_to(folder))
    return ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")


def test_modules_that_export_names_are_listed_as_public() -> None:
    paths = [path for folder in SOURCES for path in folder.glob("spanmq*/**/*.py")]
    assert {module_name(path) for path in paths if exported(path)} == PUBLIC_MODULES | GATHERING


@pytest.mark.parametrize("name", sorted(PUBLIC_MODULES))
def test_public_names_can_be_imported(name: str) -> None:
    module = importlib.import_module(name)
    assert [
        each for each in module.__all__ if getattr(module, each, None) is None or each.startswith("_")
    ] == []
    assert name not in GATHERING


def imports() -> Iterator[tuple[str, str, list[str]]]:
    """Yield the file, the module and the names of each import of this package on a page or in an example."""
    for path in [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", *(ROOT / "examples").rglob("*.py")]:
        for module, given in re.findall(r"\bfrom (spanmq[\w.]*) import ([\w, ]+)", path.read_text("utf-8")):
            yield path.name, module, [name.strip().partition(" ")[0] for name in given.split(",")]


def test_pages_import_public_names_only() -> None:
    found = [*imports()]
    assert len(found) > 20
    assert [
        (page, module, name)
        for page, module, given in found
        for name in given
        if f"{module}.{name}" not in PUBLIC_MODULES
        and (module not in PUBLIC_MODULES or name not in importlib.import_module(module).__all__)
    ] == []


def test_docstrings_name_every_parameter() -> None:
    unnamed = set()
    for name, function in public():
        words = re.findall(r"\w+", " ".join(re.findall("`([^`]+)`", str(function.__doc__))))
        unnamed |= {
            f"{name}: {each}"
            for each in inspect.signature(function).parameters.keys() - {*words, "self", "_"}
        }
    assert unnamed == set()


def test_docstrings_name_what_is_raised() -> None:
    silent = {
        name.rpartition("spanmq.")[2]
        for name, thing in public()
        if not inspect.isclass(thing) and not re.search(r"\b[Rr]aises?\b|Error\b", str(thing.__doc__))
    }
    assert silent == {
        *("client.Admin.announcements", "cancelled", "Worker.breakers", "Worker.stop"),
        *("tasks.Sent.with_reader", "tasks.Task.is_of", "tasks.Tasks.connect", "tasks.Tasks.close"),
        *("tasks.Tasks.close_async", "testing.record_progress", "testing.with_resource"),
    }


def test_example_of_a_new_verb_uses_names_that_exist() -> None:
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.DOTALL)
    for example, module in zip(examples, (admin, doors), strict=True):
        nodes = [*ast.walk(ast.parse(example))]
        names = {each.id for each in nodes if isinstance(each, ast.Name)}
        local = {each.id for each in nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
        local |= {each.arg for each in nodes if isinstance(each, ast.arg)}
        assert names - local - vars(module).keys() - vars(builtins).keys() == set()


def test_every_sqlstate_is_documented() -> None:
    states = found_in(r"'(MQ\d\d\d)'", ".sql")
    assert len(states) > 15
    assert states - INNER - WORDS == set()


def test_there_is_one_story_about_the_release() -> None:
    """The page about the installation has it, and other pages have a link."""
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    [released, *_] = re.findall(r"^## (\S+) \(\d{4}-\d\d-\d\d\)$", changes, re.MULTILINE)
    base, developed, _ = spanmq.__version__.partition(".dev")
    story = f"{released} is the latest release"
    if developed:
        story += f", and the checkout is {base} in development."
    install = ROOT / "docs/start/install.md"
    assert story in install.read_text("utf-8")
    others = [page for page in (*(ROOT / "docs").rglob("*.md"), ROOT / "README.md") if page != install]
    told = r"Not released yet|not been released|spanmq has no release|the first release"
    found = {str(page): re.findall(told, page.read_text("utf-8")) for page in others}
    assert {page: words for page, words in found.items() if words} == {}
