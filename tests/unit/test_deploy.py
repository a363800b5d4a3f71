"""The files of deploy/: their commands and probes exist, their times fit, and the tools that read them accept them."""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cli.test_commands import understand
from tests.service.route_table import ROUTES
from typer.main import get_command

from spanmq.cli.app import app
from spanmq.worker.condition import Condition
from spanmq.worker.measures import Measures, application

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
MANIFESTS: list[Any] = [*yaml.safe_load_all((DEPLOY / "kubernetes/spanmq.yaml").read_text("utf-8"))]
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
PODS = {
    each["metadata"]["name"]: each["spec"]["template"]["spec"]
    for each in MANIFESTS
    if "template" in each.get("spec", {})
}


def programs() -> Iterator[tuple[list[str], float | None]]:
    """Each command of spanmq, and the seconds that it has after SIGTERM, where the file says so."""
    for unit in UNITS:
        text = unit.read_text("utf-8")
        [line] = re.findall(r"^ExecStart=\S+/spanmq (.*)$", text, re.MULTILINE)
        seconds = re.search(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)
        yield shlex.split(line.replace("%i", "1")), seconds and float(seconds[1])
    [line] = re.findall(r"^CMD (.*)$", (DEPLOY / "Containerfile").read_text("utf-8"), re.MULTILINE)
    yield json.loads(line), None
    for service in COMPOSE["services"].values():
        if "command" in service:
            period = service.get("stop_grace_period")
            yield service["command"], period and float(period.removesuffix("s"))
    for pod in PODS.values():
        yield pod["containers"][0]["args"], pod.get("terminationGracePeriodSeconds")


def test_programs_are_commands_that_have_time_to_end() -> None:
    found = [*programs()]
    assert len(found) == 10
    for words, seconds in found:
        understand(get_command(app), [*words])
        if seconds is not None:
            grace = float(words[words.index("--grace") + 1]) if "--grace" in words else 25
            assert seconds >= grace + 5, words


def test_probes_are_answered() -> None:
    answer = application(Measures(), Condition())
    paths: dict[str, set[str]] = {"spanmq-worker": set(), "spanmq-service": set()}
    for name, its_paths in paths.items():
        [container] = PODS[name]["containers"]
        probes = [value for key, value in container.items() if key.endswith("Probe")]
        assert {each["httpGet"]["port"] for each in probes} == {each["name"] for each in container["ports"]}
        its_paths.update(each["httpGet"]["path"] for each in probes)
    for path in paths["spanmq-worker"]:
        # Other paths have the metrics.
        assert answer({"PATH_INFO": path}, lambda *_: None) == [b"starting\n"]
    assert paths["spanmq-service"] == {"/health/live", "/health/ready"} <= {route.path for route in ROUTES}


def test_manifests_are_of_the_api() -> None:
    models = pytest.importorskip("lightkube.models.core_v1", reason="lightkube is not installed")
    from lightkube.models import apps_v1, batch_v1

    for each in MANIFESTS:
        module = next(part for part in (models, apps_v1, batch_v1) if hasattr(part, each["kind"]))
        # A field that the API does not have is lost on the way, one that is missing raises.
        assert getattr(module, each["kind"]).from_dict(each, lazy=False).to_dict() == each


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_units_are_accepted_by_systemd(tmp_path: Path) -> None:
    for unit in UNITS:
        # It looks for the program, which is not here.
        text = re.sub(r"^(ExecStart=)\S+", r"\1/bin/true", unit.read_text("utf-8"), flags=re.MULTILINE)
        (tmp_path / unit.name).write_text(text)
    units = [str(tmp_path / unit.name) for unit in UNITS]
    ended = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
