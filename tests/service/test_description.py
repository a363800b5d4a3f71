"""The description of the routes, and requests made of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.program import do
from tests.patience import WAIT_SECONDS
from tests.service.route_table import APP, ROUTES
from tests.service.running import Running, patient, service

# Of each operation, beside what its description covers: few, so that none is left when time is up.
EXAMPLES = 4
SECONDS = 40


def test_every_route_is_described_and_has_the_shape_of_errors() -> None:
    paths = APP.openapi()["paths"]
    for route in ROUTES:
        described = paths[route.path][route.method.lower()]
        assert described["summary"]
        assert described["description"], route
        for status in ("400", "401", "403", "404", "429", "503"):
            shape = described["responses"][status]["content"]["application/json"]["schema"]["$ref"]
            assert shape.endswith("/Failed")


def test_names_of_operations_are_unique() -> None:
    names = [route.name for route in ROUTES]
    assert [name for name in names if names.count(name) > 1] == []


def test_page_of_the_description_needs_no_token_and_says_no_secret(shared: Running) -> None:
    with shared.client() as client:
        assert client.get("/docs").status_code == 200
        assert client.get("/openapi.json").json()["info"]["title"] == "spanmq"


@pytest.mark.slow
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
