"""Requests made of the description of the routes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.cli.program import do
from tests.patience import WAIT_SECONDS
from tests.service.running import patient, service

# Of each operation, beside what its description covers: few, so that none is left when time is up.
EXAMPLES = 4


SECONDS = 40


def test_no_request_that_the_description_allows_or_forbids_breaks_the_service(
    orders: str, tmp_path: Path
) -> None:
    do(orders, "select pgmq.create('0')")
    # Nobody waits: a poll of twenty seconds tells nothing more.
    with service(patient(orders), tmp_path, "--wait-max", 0.01, "--pool-timeout", 60) as running:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli", "run", f"{running.address}/openapi.json"),
                *("--checks", "not_a_server_error", "--max-examples", str(EXAMPLES)),
                *("--max-time", str(SECONDS)),
                *("--phases", "coverage,fuzzing", "--seed", "6", "--workers", "2", "--no-color"),
                *("--continue-on-failure", "--suppress-health-check", "all"),
            ],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=WAIT_SECONDS,
            check=False,
        )
        assert "Server error" not in done.stdout, done.stdout[-6_000:]
        assert done.returncode in (0, 1), done.stdout[-3_000:] + done.stderr[-3_000:]
        assert "request_broke" not in running.log.read_text()
        with running.client() as client:
            assert client.get("/health/ready").status_code == 200
