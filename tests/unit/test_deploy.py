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
from psycopg.conninfo import conninfo_to_dict
from service.tests.route_table import ROUTES
from tests.cli.test_commands import understand
from tests.process import proxy
from typer.main import get_command

from spanmq.cli.app import app
from spanmq.worker.condition import Condition
from spanmq.worker.measures import Measures, application
from spanmq_service.server import KEEP_ALIVE_SECONDS
from spanmq_service.settings import Settings

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
NGINX = DEPLOY / "nginx.conf"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
PAGE = (DEPLOY.parent / "docs/operations/deployment.md").read_text("utf-8")
MANIFESTS: dict[Path, list[Any]] = {
    path: [*yaml.safe_load_all(path.read_text("utf-8"))]
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
}
OBJECTS = [each for objects in MANIFESTS.values() for each in objects]
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
PODS = {
    each["spec"]["template"]["metadata"]["labels"]["app"]: each["spec"]["template"]["spec"]
    for each in OBJECTS
    if "template" in each.get("spec", {})
}
# What Compose reads, by its specification: https://github.com/compose-spec/compose-spec/blob/main/05-services.md
SERVICE_KEYS = {
    *(
        "build",
        "cap_drop",
        "command",
        "depends_on",
        "deploy",
        "entrypoint",
        "environment",
        "healthcheck",
        "image",
    ),
    *("ports", "restart", "secrets", "security_opt", "stop_grace_period", "volumes"),
}


def programs() -> Iterator[tuple[list[str], float | None]]:
    """Each command of spanmq, and the seconds that it has after SIGTERM, where the file says so."""
    for unit in UNITS:
        text = unit.read_text("utf-8")
        [line] = re.findall(r"^ExecStart=\S+/spanmq (.*)$", text, re.MULTILINE)
        seconds = re.search(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)
        yield shlex.split(line.replace("%i", "9201")), seconds and float(seconds[1])
    [line] = re.findall(r"^CMD (.*)$", (DEPLOY / "Containerfile").read_text("utf-8"), re.MULTILINE)
    yield json.loads(line), None
    for service in COMPOSE["services"].values():
        if "command" in service:
            period = service.get("stop_grace_period")
            for words in spoken(service.get("entrypoint"), service["command"]):
                yield words, period and float(period.removesuffix("s"))
    for pod in PODS.values():
        for words in spoken(pod["containers"][0].get("command"), pod["containers"][0]["args"]):
            yield words, pod.get("terminationGracePeriodSeconds")


def spoken(entry: list[str] | None, words: list[str]) -> Iterator[list[str]]:
    """Yield the arguments of spanmq, which is the entry point of the image, or is called by a script."""
    if entry is None:
        yield words
        return
    assert entry == ["sh", "-euc"]
    [script] = words
    for line in script.splitlines():
        assert line.startswith("spanmq ")
        yield shlex.split(line)[1:]


def test_programs_are_commands_that_have_time_to_end() -> None:
    found = [*programs()]
    assert len(found) == 15
    for words, seconds in found:
        understand(get_command(app), [*words])
        if seconds is not None:
            grace = float(words[words.index("--grace") + 1]) if "--grace" in words else 25
            assert seconds >= grace + 5, words


def test_every_worker_creates_its_queues() -> None:
    workers = [words for words, _ in programs() if words[0] == "worker"]
    assert len(workers) == 4
    assert [words for words in workers if "--create-queues" not in words] == []


def test_each_program_has_a_role_of_its_own() -> None:
    """The owner's password is in the schema's container only, and the superuser's in the database's."""
    services = COMPOSE["services"]
    secrets = {
        name: set(each["secrets"]) for name, each in services.items() if name not in ("database", "proxy")
    }
    assert secrets == {"schema": {"owner"}, "worker": {"worker"}, "service": {"service"}}
    dsns = {name: each["environment"]["SPANMQ_DSN"] for name, each in services.items() if name in secrets}
    volumes = {}
    for name, pod in PODS.items():
        [container], [volume] = pod["containers"], pod["volumes"]
        volumes[name] = volume["secret"]["secretName"]
        dsns[name] = next(each["value"] for each in container["env"] if each["name"] == "SPANMQ_DSN")
    assert volumes == {
        name: f"spanmq-{name.removeprefix('spanmq-').replace('schema', 'owner')}" for name in PODS
    }
    roles = {name: conninfo_to_dict(dsn)["user"] for name, dsn in dsns.items()}
    for name, role in roles.items():
        assert role == f"shop_{name.removeprefix('spanmq-').replace('schema', 'owner')}"
    files = re.findall(r"^EnvironmentFile=(\S+)$", "".join(u.read_text("utf-8") for u in UNITS), re.MULTILINE)
    assert len(set(files)) == len(UNITS) == 3
    assert {file for file in files if file not in PAGE} == set()


def test_compose_has_keys_that_compose_reads_and_names_that_exist() -> None:
    assert {key for key in COMPOSE if not key.startswith("x-")} == {"services", "secrets", "volumes"}
    for service in COMPOSE["services"].values():
        assert service.keys() <= SERVICE_KEYS
        assert set(service.get("secrets", [])) <= COMPOSE["secrets"].keys()
        assert set(service.get("depends_on", {})) <= COMPOSE["services"].keys()
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            assert source in COMPOSE["volumes"] or (DEPLOY / source).is_file()


def test_image_of_the_database_has_the_files_that_the_programs_wrote() -> None:
    """The last stage is the image that is built where none is named: the programs'."""
    text = (DEPLOY / "Containerfile").read_text("utf-8")
    stages = re.findall(r"^FROM (\S+)(?: AS (\S+))?$", text, re.MULTILINE)
    assert [name for _, name in stages] == ["shop", "database", ""]
    assert stages[-1][0] == "shop"
    [folder] = re.findall(r"^RUN spanmq schema extension --folder (\S+)$", text, re.MULTILINE)
    [version] = re.findall(r"postgres:(\d+)$", stages[1][0])
    copied = f"COPY --from=shop {folder}/extension/ /usr/share/postgresql/{version}/extension/"
    assert copied in text.splitlines()
    assert COMPOSE["services"]["database"]["build"]["target"] == "database"


def test_no_password_is_in_the_folder_of_an_image() -> None:
    for secret in COMPOSE["secrets"].values():
        # Beside the folder that is the context of the build.
        assert secret["file"].startswith("../")
    lines = [
        line for line in (DEPLOY / ".dockerignore").read_text("utf-8").splitlines() if line and line[0] != "#"
    ]
    assert lines[0] == "*"
    allowed = {line.removeprefix("!") for line in lines if line.startswith("!")}
    assert allowed == {"pyproject.toml", "README.md", "src", "shop", "wheels"}
    assert re.findall(r"^(?:cp|install) .*deploy/\.dockerignore", PAGE, re.MULTILINE)


def test_manifests_can_be_applied_again() -> None:
    """`apply` needs a name; the template of a Job never changes, so each run of a Job has a name of its own."""
    for path, objects in MANIFESTS.items():
        verb = "create" if any(each["kind"] == "Job" for each in objects) else "apply"
        assert f"kubectl {verb} -f deploy/kubernetes/{path.name}" in PAGE
        key = "generateName" if verb == "create" else "name"
        assert [each["metadata"] for each in objects if key not in each["metadata"]] == []
        if verb == "create":
            assert [each for each in objects if not each["spec"]["ttlSecondsAfterFinished"]] == []


def test_pods_are_accepted_under_the_restricted_standard() -> None:
    """By https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted"""
    volumes = {
        *("name", "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim"),
        *("projected", "secret"),
    }
    assert len(PODS) == 3
    for name, pod in PODS.items():
        assert not pod.keys() & {"hostNetwork", "hostPID", "hostIPC"}, name
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] != 0
        assert pod["securityContext"]["seccompProfile"]["type"] in ("RuntimeDefault", "Localhost")
        assert {key for volume in pod["volumes"] for key in volume} <= volumes
        for container in (*pod["containers"], *pod.get("initContainers", ())):
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"]["drop"] == ["ALL"]
            assert set(context["capabilities"].get("add", ())) <= {"NET_BIND_SERVICE"}
            assert not context.get("privileged")
            assert not any("hostPort" in port for port in container.get("ports", ()))


def test_probes_are_answered() -> None:
    answer = application(Measures(), Condition().probes)
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

    for each in OBJECTS:
        module = next(part for part in (models, apps_v1, batch_v1) if hasattr(part, each["kind"]))
        # A field that the API does not have is lost on the way, one that is missing raises.
        assert getattr(module, each["kind"]).from_dict(each, lazy=False).to_dict() == each


def test_clients_reach_the_service_through_the_proxy_alone() -> None:
    services = COMPOSE["services"]
    assert [name for name, service in services.items() if "ports" in service] == ["proxy"]
    assert "--trusted-proxies" in services["service"]["command"]
    [upstream] = re.findall(r"server (\S+);", NGINX.read_text("utf-8"))
    assert upstream == f"service:{Settings().port}"


def test_proxy_lets_requests_live_as_long_as_the_service_does() -> None:
    settings, text = Settings(), NGINX.read_text("utf-8")
    seconds = {name: float(n) for name, n in re.findall(r"(\w+_timeout) (\d+)s;", text)}
    assert seconds["client_body_timeout"] == seconds["client_header_timeout"] == settings.read_timeout
    assert seconds["proxy_read_timeout"] > settings.wait_max + settings.statement_timeout
    # Else a request could meet a connection that the service is closing.
    assert seconds["keepalive_timeout"] < KEEP_ALIVE_SECONDS
    assert f"client_max_body_size {settings.body_bytes_max // 2**20}m;" in text
    [connections] = re.findall(r"worker_connections (\d+);", text)
    assert int(connections) >= 2 * (settings.waiting_max + settings.requests_max)


@pytest.mark.skipif(proxy.PROGRAM is None, reason="nginx is not installed")
def test_configuration_is_accepted_by_nginx(tmp_path: Path) -> None:
    ended = proxy.check(tmp_path, "127.0.0.1:8080")
    assert (ended.returncode, "warn" in ended.stderr) == (0, False), ended.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_units_are_accepted_by_systemd(tmp_path: Path) -> None:
    for unit in UNITS:
        # It looks for the program, which is not here.
        text = re.sub(r"^(ExecStart=)\S+", r"\1/bin/true", unit.read_text("utf-8"), flags=re.MULTILINE)
        (tmp_path / unit.name).write_text(text)
    units = [str(tmp_path / unit.name) for unit in UNITS]
    ended = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
