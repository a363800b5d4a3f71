"""Django: migrations, sends and tasks in its transactions, commands, and the backend of `django.tasks`.

In a process of its own: settings are for a whole process, and other tests have theirs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

PROGRAM = Path(__file__).with_name("site") / "check.py"


@pytest.mark.parametrize("part", ["migrations", "transactions", "worker", "backend"])
def test_site(empty_database: str, part: str) -> None:
    if part == "backend" and not (find_spec("django_tasks") or find_spec("django.tasks")):
        pytest.skip("needs Django 6 or django-tasks")
    parts = conninfo_to_dict(empty_database)
    done = subprocess.run(
        [sys.executable, "-W", "error", str(PROGRAM), part],
        env={**os.environ, **{f"SITE_{name.upper()}": str(value) for name, value in parts.items()}},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "as expected\n"), done.stderr
