"""The files of deploy/: what they start exists, and the tools that read them accept them."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cli.test_commands import COMMANDS
from tests.service.route_table import ROUTES
from typer.testing import CliRunner

from spanmq.cli.app import app
from spanmq.worker.condition import Condition
from spanmq.worker.measures import Measures, application

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
MANIFESTS: list[Any] = [*yaml.safe_load_all((DEPLOY / "kubernetes/spanmq.yaml").read_text("utf-8"))]
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
DEPLOYMENTS = {each["metadata"]["name"]: each["spec"]["template"]["spec"] for each in MANIFESTS if each["kind"] == "Deployment"}
