"""Requests made of the description of the routes."""

import subprocess
import sys
from pathlib import Path

from service.tests.running import patient, service
from tests.cli.program import do
from tests.patience import WAIT_SECONDS

# Of each operation, beside what its description covers: few, so that none is left when time is up.
EXAMPLES = 4
SECONDS = 40
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


def test_every_request_that_is_made_of_the_description_is_answered_as_described(
    orders: str, tmp_path: Path
) -> None:
    do(orders, "select pgmq.create('0')")
    # Nobody waits: a poll of twenty seconds tells nothing more.
    with service(patient(orders), tmp_path, "--wait-max", 0.01, "--pool-timeout", 60) as running:
        # One worker: in several threads ast.parse(), which Hypothesis calls, fails at times in Python 3.11.
        done = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli", "run", f"{running.address}/openapi.json"),
                *("--checks", CHECKS, "--max-examples", str(EXAMPLES)),
                *("--max-time", str(SECONDS)),
                *("--phases", "coverage,fuzzing", "--seed", "6", "--workers", "1", "--no-color"),
                *("--continue-on-failure", "--suppress-health-check", "all"),
            ],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=WAIT_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-6_000:] + done.stderr[-3_000:]
        assert "request_broke" not in running.log.read_text()
        with running.client() as client:
            assert client.get("/health/ready").status_code == 200
