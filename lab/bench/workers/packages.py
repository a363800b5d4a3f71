"""Contestants that are not development dependencies: their versions, and their installation into the cache."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
CACHE: Final = ROOT / ".cache" / "peers"
NODE: Final = "22.23.3"  # the oldest line that the packages for Node.js support
TIMEOUT_SECONDS: Final = 600
_MACHINES: Final = {"x86_64": "x64", "aarch64": "arm64"}


class UnavailableError(Exception):
    """A package cannot be installed here."""


@dataclass(frozen=True, slots=True)
class Package:
    """A package of PyPI, which may need a newer Python than this one, or of npm."""

    name: str
    version: str
    python: tuple[int, int] | None = (3, 11)  # None: it is one of npm

    @property
    def folder(self) -> Path:
        """Where it is installed."""
        return CACHE / f"{self.name}-{self.version}"


PACKAGES: Final = {
    "awa": Package("awa-pg", "0.6.9"),
    "oban": Package("oban", "0.7.0", python=(3, 12)),
    "graphile-worker": Package("graphile-worker", "0.18.0", python=None),
    "pg-boss": Package("pg-boss", "12.38.0", python=None),
}


def version_of(name: str) -> str:
    """Return the version of a contestant, such as `spanmq-tasks` or `awa`."""
    return PACKAGES[name].version if name in PACKAGES else metadata.version(name.partition("-")[0])


def interpreter_for(name: str) -> Path:
    """Return the Python or Node.js that runs a contestant, installed if need be; raise UnavailableError."""
    package = PACKAGES.get(name)
    if package is None:
        return Path(sys.executable)
    is_python = package.python is not None
    interpreter = package.folder / ("bin/python" if is_python else f"node_modules/{_node()}/bin/node")
    complete = package.folder / "complete"
    if not complete.exists():
        shutil.rmtree(package.folder, ignore_errors=True)
        package.folder.mkdir(parents=True)
        if package.python is not None:
            _run([_python(package.python), "-m", "venv", str(package.folder)])
            _run([str(interpreter), "-m", "pip", "install", "--quiet", f"{package.name}=={package.version}"])
        else:
            options = ("--ignore-scripts", "--no-package-lock", "--no-save", "--no-audit", "--no-fund")
            packages = (f"{package.name}@{package.version}", f"{_node()}@{NODE}")
            _run(["npm", "install", *options, "--prefix", str(package.folder), *packages])
        complete.touch()
    return interpreter


def _node() -> str:
    """Return the package of npm that contains Node.js for this machine."""
    machine = platform.machine()
    return f"node-{sys.platform}-{_MACHINES.get(machine, machine)}"


def _python(minimum: tuple[int, int]) -> str:
    """Return a Python that is new enough: this one, or the newest on the path."""
    if sys.version_info >= minimum:
        return sys.executable
    for minor in range(minimum[1] + 4, minimum[1] - 1, -1):
        command = f"python{minimum[0]}.{minor}"
        # A version manager's command may exist and refuse to run.
        with suppress(UnavailableError):
            _run([command, "-c", ""])
            return command
    raise UnavailableError(f"needs Python {minimum[0]}.{minimum[1]} or newer on the path")


def _run(command: Sequence[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    except subprocess.CalledProcessError as error:
        raise UnavailableError(" ".join(error.stderr.split())[-300:]) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(str(error)) from error
