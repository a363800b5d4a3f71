"""Django: migrations, sends and tasks in its transactions, commands, and the backend of `django.tasks`.

In a process of its own: settings are for a whole process, and other tests have theirs.
"""

import os
import subprocess
import sys
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

PROGRAM = Path(__file__).with_name("site") / "check.py"


def test_site(empty_database: str, tmp_path: Path) -> None:
    parts = {**conninfo_to_dict(empty_database), "file": tmp_path / "site.sqlite3"}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(PROGRAM)],
        env={**os.environ, **{f"SITE_{name.upper()}": str(value) for name, value in parts.items()}},
        capture_output=True,
        text=True,
        check=False,
    )
    # A connection that nothing closes is a warning there.
    assert (done.returncode, done.stdout, done.stderr) == (0, "as expected\n", "")
