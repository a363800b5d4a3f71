"""Write docs/reference/commands.md: every command with examples and options; `--check` only compares, for CI."""

from __future__ import annotations

import argparse
import difflib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from spanmq.cli.app import NOUNS, VERBS, app

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "commands.md"
HEAD = """\
<!-- Made by tools/generate_cli_reference.py: change the commands. -->
# All commands

The [command line](cli.md) explains how they work together. All have `--help`. All but `psql` and `schema sql` have
`--json` (JSON, a line a record; errors too); all but `schema sql` and `encryption add-key`, which use no
database, have `--dsn` (default: `SPANMQ_DSN`, else the embedded server).
"""
EVERYWHERE = {"dsn", "as_json"}


def generate() -> str:
    """Return the text of the page."""
    program: Any = typer.main.get_command(app)
    parts = [HEAD, *("\n".join(describe(name, program.commands[name], "##")) for name in VERBS)]
    for noun, (_, _, summary) in NOUNS.items():
        parts.append(f"## {noun}\n\n{summary}\n")
        for name, command in program.commands[noun].commands.items():
            parts.append("\n".join(describe(f"{noun} {name}", command, "###")))
    return "\n".join(parts)


def describe(name: str, command: Any, level: str) -> Iterator[str]:
    """Yield the lines for one command."""
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    usage = [
        name_of(parameter) if parameter.required else f"[{name_of(parameter)}]" for parameter in arguments
    ]
    yield f"{level} spanmq {name}\n"
    if usage:
        yield f"```text\nspanmq {' '.join([name, *usage])}\n```\n"
    yield inspect.cleandoc(command.help) + "\n"
    examples = [line for line in command.epilog.splitlines() if line.strip().startswith("$ ")]
    yield "\n".join(["```sh", *(line.strip().removeprefix("$ ") for line in examples), "```\n"])
    rows = [row(parameter) for parameter in command.params if parameter.name not in EVERYWHERE]
    if rows:
        yield "| | |\n|---|---|"
        yield from rows
        yield ""


def row(parameter: Any) -> str:
    """Return the line for an argument or an option."""
    default = parameter.default
    shown = "" if default in (None, False, "") or callable(default) else f" Default: {default}."
    if parameter.param_type_name == "argument":
        names = f"`{name_of(parameter)}`"
    else:
        names = ", ".join(f"`{option}`" for option in [*parameter.opts, *parameter.secondary_opts])
    return f"| {names} | {parameter.help.replace('|', ' or ')}{shown} |"


def name_of(argument: Any) -> str:
    """Return an argument's name as help shows it."""
    name = str(argument.metavar or argument.name.upper())
    return name if argument.nargs == 1 else f"{name}..."


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only; exit with 1 if the page is stale")
    check = parser.parse_args().check
    text = generate()
    written = PAGE.read_text("utf-8") if PAGE.exists() else ""
    if text == written:
        return 0
    if not check:
        PAGE.write_text(text, "utf-8")
        return 0
    old, new = written.splitlines(keepends=True), text.splitlines(keepends=True)
    sys.stdout.writelines(difflib.unified_diff(old, new, "as committed", "as generated"))
    return 1


if __name__ == "__main__":
    sys.exit(main())
