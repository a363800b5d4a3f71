"""The roles of deploy/, each with its password, run the programs of Compose on a server, none as a superuser."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import psycopg
import pytest
import yaml
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from service.tests.running import service_process
from tests.cli.program import environment, spanmq
from tests.patience import WAIT_SECONDS
from tests.sql.schema.extension_files import open_to_server

from spanmq import embedded

DEPLOY = Path(__file__).parents[2] / "deploy"
SERVICES = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"]
CONTAINERFILE = (DEPLOY / "Containerfile").read_text("utf-8")
PROGRAM = """
from spanmq.tasks import Tasks

tasks = Tasks("orders")


@tasks.task
def ship(number: int) -> None:
    ship_again.send(number)


@tasks.task(queue="mail")
def ship_again(number: int) -> None:
    print("shipped again", number)
"""


def test_programs_run_as_their_roles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    for name in ("owner", "worker", "service"):
        (secrets / name).write_text(f"the password of {name}\n")
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/tasks.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    with (
        files_of_the_extension() as folder,
        embedded.temporary(settings={"extension_control_path": f"{folder}:$system"}) as server,
    ):
        create_roles(server, secrets)

        def variables(name: str) -> Mapping[str, str]:
            """Return the environment of a container, with this server and these files."""
            own: dict[str, str] = SERVICES[name]["environment"]
            inside = conninfo_to_dict(own["SPANMQ_DSN"])
            dsn = make_conninfo(server.dsn, user=inside["user"], dbname=inside["dbname"])
            command = own["SPANMQ_PASSWORD_COMMAND"].replace("/run/secrets", shlex.quote(str(secrets)))
            return {"SPANMQ_DSN": dsn, "SPANMQ_PASSWORD_COMMAND": command}

        [script] = SERVICES["schema"]["command"]
        # Compose runs it at each start.
        for line in [*script.splitlines(), *script.splitlines()]:
            done = spanmq(*shlex.split(line)[1:], dsn=None, more=variables("schema"))
            assert (done.code, done.err) == (0, ""), line
        words = SERVICES["worker"]["command"]
        words = [*words[: words.index("--metrics-port")], "--until-empty"]
        more = variables("worker")
        sending = (
            "from shop.tasks import ship, tasks; tasks.create_queues(); [ship.send(n) for n in range(3)]"
        )
        subprocess.run(
            [sys.executable, "-c", sending], env=environment(None, more), check=True, timeout=WAIT_SECONDS
        )
        done = spanmq(*words, dsn=None, more=more)
        assert done.code == 0, done.err
        assert sorted(re.findall(r"shipped again (\d)", done.out)) == ["0", "1", "2"]
        dsn = make_conninfo(variables("service")["SPANMQ_DSN"], password="the password of service")
        with service_process(dsn, tmp_path) as service:
            ready = httpx.get(f"{service.address}/health/ready", trust_env=False)
            assert ready.status_code == 200, ready.text
        with psycopg.connect(
            make_conninfo(variables("worker")["SPANMQ_DSN"], password="the password of worker")
        ) as connection:
            # As programs of PGMQ begin; the role may not create one.
            connection.execute("create extension if not exists pgmq cascade")
        with psycopg.connect(make_conninfo(server.dsn, dbname="shop")) as connection:
            rows = connection.execute(
                "select rolname, rolsuper or rolcreaterole or rolcreatedb, pg_has_role(oid, 'shop_owner', 'member')"
                " from pg_roles where rolname like 'shop%' order by 1"
            ).fetchall()
        assert rows == [
            ("shop_owner", False, True),
            ("shop_service", False, False),
            ("shop_worker", False, False),
        ]


@contextmanager
def files_of_the_extension() -> Iterator[str]:
    """Write the extension's files as the image does, where the server, another user, can read them."""
    [line] = re.findall(r"^RUN spanmq (schema extension) --folder \S+$", CONTAINERFILE, re.MULTILINE)
    with TemporaryDirectory() as folder:
        done = spanmq(*line.split(), "--folder", folder, dsn=None)
        assert done.code == 0, done.err
        open_to_server(Path(folder))
        Path(folder).chmod(0o755)
        yield folder


def create_roles(server: embedded.TemporaryServer, secrets: Path) -> None:
    """Create them as the container of the database does, and let the server ask for passwords."""
    place = conninfo_to_dict(server.dsn)
    subprocess.run(
        [DEPLOY / "roles.sh"],
        env={
            "PATH": f"{embedded.find_binaries()}{os.pathsep}{os.environ['PATH']}",
            "SECRETS": str(secrets),
            "PGHOST": str(place["host"]),
            "PGPORT": str(place["port"]),
        },
        check=True,
    )
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        [file] = connection.execute("show hba_file").fetchone() or ()
        rules = Path(file)
        rules.write_text(f"local all /^shop scram-sha-256\n{rules.read_text()}")
        connection.execute("select pg_reload_conf()")
