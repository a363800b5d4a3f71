"""The SQL of one version of the product, as statements and as a script. Reads files only.

`sql/tables` are applied once each, `sql/functions` again at every change, `sql/manager` does the rest. Files are
applied by name, a folder's after those of the folders in it: `functions/entries.sql` comes last.
"""

import hashlib
import importlib.resources
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources.abc import Traversable
from itertools import takewhile

from spanmq.errors import InvalidArgumentError, SchemaVersionError
from spanmq.version import __version__

# The first 64 bits of the SHA-256 of "spanmq.schema": no other program is likely to lock the same number.
LOCK_KEY = 1427365083163801878
# Settings of functions whose plans must not depend on statistics; `:pinned` in the files stands for them.
PINNED = "set plan_cache_mode = force_generic_plan set jit = off set enable_seqscan = off set enable_bitmapscan = off"

# Files of `sql/manager` that are parts of others.
PARTS = ("snapshot", "strangers", "drop", "foreign_code")


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL text to run in one step: one command or several. `name` is its origin."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Migration:
    """A file of `sql/tables`, with the SHA-256 of its text and the product version that brought it."""

    name: str
    text: str
    checksum: str
    since: str


@dataclass(frozen=True, slots=True)
class Release:
    """One version of the product. `functions` are complete: tokens replaced."""

    version: str
    migrations: tuple[Migration, ...]
    functions: tuple[Statement, ...]
    functions_checksum: str


def load_release(folder: Traversable | None = None, *, version: str | None = None) -> Release:
    """Read the SQL files: ours, or those in another folder with `tables` and `functions` (for tests).

    The first line of a migration, `-- since 0.2.0`, says which version brought it; without, it counts as new.
    """
    if folder is None and version is None:
        return _installed_release()
    folder = folder or importlib.resources.files("spanmq") / "sql"
    version = version or __version__
    tokens = {
        "version": literal(version),
        "pinned": PINNED,
        "strangers": manager("strangers").text,
        "foreign_code": manager("foreign_code").text,
        "snapshot": manager("snapshot").text,
    }
    migrations = []
    for name, text in _read_folder(folder / "tables"):
        since = re.match(r"-- since (\S+)\n", text)
        checksum = hashlib.sha256(text.encode()).hexdigest()
        complete = _replace(text, version=tokens["version"])
        migrations.append(Migration(name, complete, checksum, since[1] if since else version))
    functions = tuple(
        Statement(f"functions/{name}", _replace(text, **tokens) + comments(text))
        for name, text in _read_folder(folder / "functions")
    )
    digest = hashlib.sha256(
        "\0".join(f"{statement.name}\0{statement.text}" for statement in functions).encode()
    )
    return Release(version, tuple(migrations), functions, digest.hexdigest())


@cache
def _installed_release() -> Release:
    return load_release(version=__version__)


_FUNCTION = re.compile(
    r"create or replace function (?P<name>(?:pgmq|spanmq|spanmq_call)\.\w+)\((?P<arguments>[^)]*)\)"
)


def comments(text: str) -> str:
    """Write the header of each function that people call as its comment; one without has that of its namesake."""
    headers: dict[str, str] = {}
    result = []
    for match in _FUNCTION.finditer(text):
        # A regular expression that begins with the header takes five times as long as all the rest.
        lines = text[: match.start()].splitlines()
        above = list(takewhile(lambda line: line.startswith("--"), reversed(lines)))
        header = "\n".join(line.removeprefix("--").removeprefix(" ") for line in reversed(above)).strip()
        header = headers[match["name"]] = header or headers.get(match["name"], "")
        arguments = re.sub(r" default [^,]*", "", " ".join(match["arguments"].split()))
        if header:
            result.append(f"comment on function {match['name']}({arguments}) is {literal(header)};\n")
    return "".join(["\n", *result]) if result else ""


_HEADER = re.compile(
    r"^create or replace function (pgmq|spanmq|spanmq_call|spanmq_core)\.(\w+)(\(.*?)\s+language (?:sql|plpgsql)\b",
    re.MULTILINE | re.DOTALL,
)


def headers(functions: Sequence[Statement]) -> list[str]:
    """Return schema, name and the rest of the header of each function, in turn."""
    return [part for function in functions for header in _HEADER.findall(function.text) for part in header]


def statements(release: Release, pending: Sequence[Migration]) -> list[Statement]:
    """List what applies some migrations and all functions, and records it.

    Goes between `manager/begin.sql` and `manager/end.sql`, in one transaction.
    """
    result = [manager("bound"), manager("ledger")]
    for migration in pending:
        result.append(Statement(f"tables/{migration.name}", migration.text))
        values = ", ".join(map(literal, (migration.name, migration.checksum, release.version)))
        text = f"insert into spanmq_core.migration (name, checksum, version) values ({values});\n"
        result.append(Statement(f"tables/{migration.name} (record)", text))
    array = f"array[{', '.join(map(literal, headers(release.functions)))}]::text[]"
    result += [manager("replace", headers=array), *release.functions, manager("leftovers")]
    checksum = literal(release.functions_checksum)
    result.append(manager("record", version=literal(release.version), functions_checksum=checksum))
    return result


def script(release: Release, from_version: str | None = None, *, transaction: bool = True) -> str:
    """Write the installation for a database without spanmq, or with `from_version`, as plain SQL.

    Raises InvalidArgumentError for an invalid version, SchemaVersionError for a later one than this.
    """
    if from_version is not None:
        try:
            is_newer = version_key(from_version) > version_key(release.version)
        except ValueError as error:
            raise InvalidArgumentError(str(error), hint="Give one such as 0.1.0.") from error
        if is_newer:
            raise SchemaVersionError(
                f"an upgrade is not possible from {from_version} to {release.version}",
                hint="Use that version or a newer one.",
                code="schema_newer",
            )
    present = [
        migration
        for migration in release.migrations
        if from_version is not None and version_key(migration.since) <= version_key(from_version)
    ]
    pending = [migration for migration in release.migrations if migration not in present]
    expected = f"array[{', '.join(literal(migration.name) for migration in present)}]::text[]"
    guard = manager("guard", expected=expected)
    parts = [manager("begin"), guard, *statements(release, pending), manager("end")]
    body = "\n".join(f"-- {part.name}\n{part.text.rstrip()}\n" for part in parts)
    begin, commit = ("begin;\n\n", "\ncommit;\n") if transaction else ("\n", "")
    origin = f"from {from_version}" if from_version else "for a database that holds nothing yet"
    return f"-- The schema of spanmq {release.version}, {origin}.\n{begin}{body}{commit}"


def manager(name: str, **tokens: str) -> Statement:
    """Read one of our own statements from `sql/manager`, with its tokens replaced."""
    folder = importlib.resources.files("spanmq") / "sql" / "manager"
    text = (folder / f"{name}.sql").read_text(encoding="utf-8")
    parts = {part: (folder / f"{part}.sql").read_text(encoding="utf-8") for part in PARTS}
    parts["strangers"] = _replace(parts["strangers"], foreign_code=parts["foreign_code"])
    tokens |= {part: content for part, content in parts.items() if f":{part}" in text}
    return Statement(f"manager/{name}.sql", _replace(text, lock_key=str(LOCK_KEY), **tokens))


def version_key(version: str) -> tuple[tuple[int, ...], int, int]:
    """Order versions as Python packages do: 0.2.0.dev1 < 0.2.0a1 < 0.2.0rc1 < 0.2.0 < 0.10.0."""
    match = re.match(r"(\d+(?:\.\d+)*)(?:[.-]?(dev|a|b|rc)\.?(\d*))?", version)
    if match is None:
        raise ValueError(f"not a version: {version!r}")
    numbers = [int(number) for number in match[1].split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    stage = ["dev", "a", "b", "rc", None].index(match[2])
    return tuple(numbers), stage, int(match[3] or 0)


def literal(value: str) -> str:
    """Quote a string for SQL."""
    return "'" + value.replace("'", "''") + "'"


def _read_folder(folder: Traversable, path: str = "") -> Iterator[tuple[str, str]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: (entry.is_file(), entry.name)):
        if entry.is_dir():
            yield from _read_folder(entry, f"{path}{entry.name}/")
        elif entry.name.endswith(".sql"):
            # read_text() turns \r\n into \n, so a checkout on Windows has the same checksums.
            yield path + entry.name, entry.read_text(encoding="utf-8")


def _replace(text: str, **tokens: str) -> str:
    # Not the second colon of a cast.
    return re.sub(rf"(?<![:\w]):({'|'.join(tokens)})\b", lambda match: tokens[match[1]], text)
