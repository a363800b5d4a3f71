"""A command imports what it needs, and no other command."""

from __future__ import annotations

import subprocess
import sys

import pytest

from spanmq.cli.commands import PANELS, WORDS

IMPORTED = """
import sys
from spanmq.cli.commands import program
import typer
group = typer.main.get_command(program(sys.argv[1:]))
print(*sorted(group.commands), sep=",")
print(*sorted(name for name in sys.modules if name.startswith("spanmq.cli.")), sep=",")
"""


@pytest.mark.parametrize(
    ("command", "commands", "modules"),
    [("ack", "ack", {"settling"}), ("keys", "keys", {"keys"})],
)
def test_command_imports_no_other(command: str, commands: str, modules: set[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED, command, "orders"], capture_output=True, text=True, check=True
    )
    built, imported = done.stdout.splitlines()
    assert built == commands
    homes = {f"spanmq.cli.{each.module}" for each in (*PANELS, *WORDS)}
    assert homes.intersection(imported.split(",")) == {f"spanmq.cli.{name}" for name in modules}
