"""The commands of examples/airflow are commands of this program."""

from __future__ import annotations

import ast
import shlex
from pathlib import Path

from tests.cli.test_commands import PROGRAM, understand

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/airflow/orders.py"


def test_tasks_of_airflow_run_commands_that_exist() -> None:
    given = {
        keyword.arg: ast.literal_eval(keyword.value)
        for node in ast.walk(ast.parse(EXAMPLE.read_text("utf-8")))
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg in ("bash_command", "application_args")
    }
    understand(PROGRAM, shlex.split(given["bash_command"])[1:])
    understand(PROGRAM, given["application_args"])
