"""Names in the code: a variable says what it holds, and a class has a name of its own within its distribution."""

import ast
from collections import Counter
from collections.abc import Iterator

from tests.unit.test_layout import MODULES, PACKAGES, ROOT

# Names of variables that do not say what the value is.
EMPTY_NAMES = frozenset({"each", "found", "given", "wanted"})
# A public field of the report of a backfill.
EMPTY_NAMES_LEFT = {"spark/src/spanmq_spark/jobs/backfill.py"}

# Classes of the same name in two modules of a distribution, and why.
SAME_NAME = {
    ("spanmq", "Command"): "Django finds a command by its module and calls this class",
    ("spanmq", "Migration"): "Django calls this class of a migration; the other one is a step of the schema",
    (
        "spanmq",
        "Queue",
    ): "Django names the pages of its admin after the model's class: the same thing, as rows",
    ("spanmq", "DeadLetter"): "as Queue",
    ("spanmq", "Schedule"): "as Queue",
}


def variables(tree: ast.AST) -> Iterator[str]:
    """Yield the names of the variables, parameters and fields that a module makes."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name
            case (
                ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
            ):
                yield name
            case ast.MatchMapping(rest=str(name)):
                yield name


def has_empty_name(source: str) -> bool:
    return not EMPTY_NAMES.isdisjoint(variables(ast.parse(source)))


def classes_of_the_same_name(sources: list[str]) -> set[str]:
    """Return the names that a class at the top of two of these modules has."""
    counts = Counter(
        node.name for source in sources for node in ast.parse(source).body if isinstance(node, ast.ClassDef)
    )
    return {name for name, count in counts.items() if count > 1}


# The modules that people write: those in `_sync` are generated.
WRITTEN = {
    package: {
        path.relative_to(ROOT).as_posix(): path.read_text("utf-8")
        for path in MODULES
        if path.is_relative_to(folder / package) and "_sync" not in path.parts
    }
    for package, folder in PACKAGES.items()
}


def test_variables_say_what_they_hold() -> None:
    assert all(WRITTEN.values())
    modules = {name: source for sources in WRITTEN.values() for name, source in sources.items()}
    assert {name for name, source in modules.items() if has_empty_name(source)} == EMPTY_NAMES_LEFT
    for source in (
        "each = 1",
        "[each for each in rows]",
        "def f(*, found): pass",
        "lambda wanted: 1",
        "class Row:\n    given: int",
        "try:\n    f()\nexcept E as found:\n    pass",
        "match row:\n    case {'a': given, **rest}: pass",
        "if (found := f()): pass",
    ):
        assert has_empty_name(source), source
    assert not has_empty_name("row.each = found(given=wanted)")


def test_a_class_has_a_name_of_its_own() -> None:
    same = {
        (package, name)
        for package, sources in WRITTEN.items()
        for name in classes_of_the_same_name(list(sources.values()))
    }
    assert same == SAME_NAME.keys()
    assert classes_of_the_same_name(["class A: pass", "class A: pass\nclass B: pass"]) == {"A"}
