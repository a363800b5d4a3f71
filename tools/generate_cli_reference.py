"""Write docs/cli-reference.md: every command with its options; `--check` only compares, for CI."""

from __future__ import annotations

import argparse
import difflib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from spanmq.cli.app import app
from spanmq.cli.commands import PANELS

PAGE = Path(__file__).parent.parent / "docs" / "cli-reference.md"
HEAD = """\
<!-- Made by tools/generate_cli_reference.py: change the commands. -->
# All commands

How they work together is in [cli.md](cli.md). All have `--help`. All but `sql` have `--json` (JSON, a line a
record); all but `sql` and `encryption add-key`, which use no database, have `--dsn` (without it `SPANMQ_DSN`,
else the embedded server).
"""
# Commands of two words.
GROUPS = {
    "encryption": "Keys of bodies that are sealed",
    "keys": "Keys of the SQS protocol",
    "tokens": "Tokens of the service",
    "pipeline": "Pipeline",
}
EVERYWHERE = {"dsn", "as_json"}


def generate() -> str:
    """Give the text of the page."""
    commands: dict[str, Any] = dict(getattr(typer.main.get_command(app), "commands"))  # noqa: B009
    parts = [HEAD]
    for panel in PANELS:
        parts.append(f"## {panel.title}\n")
        for name, command in commands.items():
            if command.rich_help_panel == panel.title:
                parts.append("\n".join(describe(name, command)))
    for group, heading in GROUPS.items():
        parts.append(f"## {heading}\n")
        for name, command in commands[group].commands.items():
            parts.append("\n".join(describe(f"{group} {name}", command)))
    return "\n".join(parts)


def describe(name: str, command: Any) -> Iterator[str]:
    """Give the lines for one command."""
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    usage = [name_of(each) if each.required else f"[{name_of(each)}]" for each in arguments]
    yield f"### spanmq {' '.join([name, *usage])}\n"
    yield inspect.cleandoc(command.help) + "\n"
    rows = [row(each) for each in command.params if each.name not in EVERYWHERE]
    if rows:
        yield "| | |\n|---|---|"
        yield from rows
        yield ""


def row(parameter: Any) -> str:
    """Give the line for an argument or an option."""
    default = parameter.default
    shown = "" if default in (None, False, "") or callable(default) else f" Default: {default}."
    if parameter.param_type_name == "argument":
        names = f"`{name_of(parameter)}`"
    else:
        names = ", ".join(f"`{each}`" for each in [*parameter.opts, *parameter.secondary_opts])
    return f"| {names} | {parameter.help.replace('|', ' or ')}{shown} |"


def name_of(argument: Any) -> str:
    """Give an argument's name as help shows it."""
    return str(argument.metavar or argument.name.upper())


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
