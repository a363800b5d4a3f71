"""Every block of every page: what a reader pastes is parsed, and its modules, commands, files and functions exist.

The tests that follow a page run its programs and compare what they print; these read all blocks.
"""

import ast
import configparser
import importlib.util
import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Final

import psycopg
import pytest
import yaml
from psycopg.conninfo import conninfo_to_dict
from tests.cli.test_commands import PROGRAM, understand
from tests.documented import DOCS, PAGES, ROOT, Block, blocks, prose
from tests.reader import check_installation

from spanmq.embedded.binaries import find_binaries

BLOCKS: Final = [block for page in PAGES for block in blocks(page)]
# The packages of programs on these pages: `# shop/tasks.py` is the first line of a block.
OWN: Final = {
    name
    for block in BLOCKS
    if block.language == "python"
    for name in re.findall(r"^# (\w+)(?:/\w+)*\.py$", block.text, re.MULTILINE)
}
MANAGEMENT: Final = {path.stem for path in (ROOT / "src/spanmq/django/management/commands").glob("*.py")}
# Django's own, which a page about Django uses.
DJANGO: Final = {"makemigrations", "migrate"}
# A reader whose own folder is beside it calls the checkout ../spanmq.
FILE: Final = re.compile(r"(?:\.\./spanmq/)?((?:deploy|docs|examples|lab|service|spark|src|tests|tools)/\S+)")


def check_python(block: Block) -> None:
    """Check that it compiles, and that what it imports exists."""
    code = compile(block.text, str(block), "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    for node in ast.walk(code):
        if isinstance(node, ast.Import):
            for name in node.names:
                assert exists(name.name), name.name
        elif isinstance(node, ast.ImportFrom):
            module = str(node.module)
            assert exists(module), module
            if module.partition(".")[0] == "spanmq":
                missing = {
                    each.name
                    for each in node.names
                    if not hasattr(import_module(module), each.name) and not exists(f"{module}.{each.name}")
                }
                assert not missing, f"{module}: {missing}"


def exists(module: str) -> bool:
    """Return whether a module is installed, or is the reader's own."""
    return module.partition(".")[0] in OWN or importlib.util.find_spec(module) is not None


def check_shell(block: Block) -> None:
    """Check that bash understands it, and each command that this project has."""
    subprocess.run(["bash", "-n"], input=block.text, text=True, check=True)
    for words in commands(block.text):
        check_command(words)


def check_session(block: Block) -> None:
    """Check the commands, which begin with `$ `."""
    lines = re.findall(r"^\$ (.*)$", block.text, re.MULTILINE)
    assert lines
    for line in lines:
        check_shell(Block(block.page, block.line, "sh", line))


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each command: of a pipeline, of a list, and in `$(…)`."""
    for inner in re.findall(r"\$\(([^()]*)\)", text):
        yield from commands(inner)
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if set(word) <= set("|&;"):
                if words:
                    yield words
                words = []
            else:
                words.append(word)


def check_command(words: list[str]) -> None:
    """Check what a command names: options of ours, targets, extras, files of the checkout."""
    while words and (words[0] in ("export", "do", "then") or re.match(r"\w+=", words[0])):
        words = words[1:]
    if not words:
        return
    program, arguments = words[0].rpartition("/")[2], words[1:]
    # Redirections end what the program sees.
    arguments = arguments[: next((i for i, each in enumerate(arguments) if each in ("<", ">", ">>")), None)]
    if program == "spanmq":
        understand(PROGRAM, arguments)
    elif program == "make" or (program == "pip" and any("[" in each for each in arguments)):
        check_installation(shlex.join([program, *arguments]).replace("'", ""))
    elif program == "manage.py":
        assert arguments[0] in MANAGEMENT | DJANGO
    files = [found[1] for each in words if (found := FILE.fullmatch(each))]
    assert [each for each in files if not [*ROOT.glob(each)]] == []


def check_unit(block: Block) -> None:
    """Check that it has sections."""
    parser = configparser.RawConfigParser(strict=False)
    parser.read_string(block.text)
    assert parser.sections()


def check_json(block: Block) -> None:
    """Check that it is JSON."""
    json.loads(block.text)


def check_toml(block: Block) -> None:
    """Check that it is TOML."""
    tomllib.loads(block.text)


def check_yaml(block: Block) -> None:
    """Check that it is YAML, with something in it."""
    assert [*yaml.safe_load_all(block.text)]


def leave(block: Block) -> None:
    """Check nothing here: text has no rules, and `test_sql_of_a_page_runs` runs SQL."""


CHECKS: Final[dict[str, Callable[[Block], None]]] = {
    "console": check_session,
    "ini": check_unit,
    "json": check_json,
    "python": check_python,
    "sh": check_shell,
    "sql": leave,
    "text": leave,
    "toml": check_toml,
    "yaml": check_yaml,
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_are_what_they_say(page: Path) -> None:
    wrong = []
    for block in blocks(page):
        try:
            CHECKS[block.language](block)
        except Exception as error:  # noqa: BLE001, all of a page are reported at once
            wrong.append(f"{block}: {error!r}")
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_is_in_blocks_with_a_language(page: Path) -> None:
    """Find indented code, which names no language; in a list, a line that is indented is text."""
    rest = prose(page)
    assert "```" not in re.sub(r"``` ?`|` ?```", "", rest)
    assert re.findall(r"(?<=\n\n) {4}.*", rest) == []


def test_commands_in_sentences_have_the_options_that_they_name() -> None:
    wrong = []
    for page in PAGES:
        for text in re.findall(r"`(?:\$ )?(spanmq [a-z][^`\n]*)`", prose(page)):
            known = options(text)
            named = set(re.findall(r"(?<!\S)(--?[a-z][a-z-]*)", text.partition(" | ")[0]))
            if named - known:
                wrong.append(f"{page.relative_to(ROOT)}: {text}: {named - known}")
    assert wrong == []


def options(text: str) -> set[str]:
    """Return the options of the command with which a text begins."""
    command = PROGRAM
    for word in text.split()[1:]:
        if not hasattr(command, "commands") or word not in command.commands:
            break
        command = command.commands[word]
    return {each for param in command.params for each in (*param.opts, *param.secondary_opts)} | {
        "--help",
        "-h",
    }


# The statements of this page are DuckDB's: spark/tests/test_lake_reports.py runs them.
OF_DUCKDB: Final = {DOCS / "guides/lake-reports.md"}
SQL_PAGES: Final = sorted({block.page for block in BLOCKS if block.language == "sql"} - OF_DUCKDB)
ROLE: Final = re.compile(r"\b(?:create role|alter role|authorization|grant .* on database \w+ to) (\w+)")
# A page shows a refusal, and statements that an administrator runs before the installation.
EXPECTED: Final = {"42501", "42P06"}
# A server of tests has no pg_cron.
CRON: Final = """
create schema cron;
create function cron.schedule(job_name text, schedule text, command text) returns bigint language sql return 1;
"""


@pytest.mark.parametrize("page", SQL_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_sql_of_a_page_runs(page: Path, orders: str) -> None:
    script = "\n".join(block.text for block in blocks(page) if block.language == "sql")
    # Databases of a server share its roles.
    database = str(conninfo_to_dict(orders)["dbname"])
    roles = {role: f"{role}_{database}" for role in ROLE.findall(script)}
    script = re.sub(r"\bon database \w+", f"on database {database}", script)
    for role, own in roles.items():
        script = re.sub(rf"\b{role}\b", own, script)
    with psycopg.connect(orders, autocommit=True) as connection:
        for own in roles.values():
            if f"create role {own}" not in script:
                connection.execute(f"create role {own}".encode())
        try:
            done = subprocess.run(
                [find_binaries() / "psql", "--no-psqlrc", "--quiet", "--set=VERBOSITY=verbose", orders],
                input=CRON + script,
                capture_output=True,
                text=True,
                check=True,
            )
        finally:
            for own in roles.values():
                connection.execute(f"drop owned by {own}; drop role {own}".encode())
    errors = re.findall(r"^ERROR:  (\w+): (.*)$", done.stderr, re.MULTILINE)
    assert [each for each in errors if each[0] not in EXPECTED] == []
