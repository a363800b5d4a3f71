"""Build a release in `dist` and try it outside the checkout: release.py [--quick] [--any-state].

It begins with the dump of this version's database for tests of upgrades (dump_release.py), which must be committed.
All distributions are built, each wheel from its source distribution. For each Python that is found, each wheel is
installed with what it requires, imported, and asked for its version; all together, with all extras, run the demo. The
source distribution of spanmq, which is the whole checkout, runs its tests (not with --quick). A list in CycloneDX's
format (SBOM) has what an installation of each distribution contains: of spanmq, with all extras.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import spanmq

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
PYTHONS = ["python3.11", "python3.12", "python3.13", "python3.14"]
# The folder of each distribution, by the name of its package.
FOLDERS = {
    "spanmq": ROOT,
    "spanmq_service": ROOT / "service",
    "spanmq_spark": ROOT / "spark",
    "spanmq_lab": ROOT / "lab",
}
TOOLS = ["build>=1.2", "twine>=6", "cyclonedx-bom>=5"]


def main() -> int:
    """Build and try a release; return 1 with a sentence where it can't be one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="do not run the tests of the source distribution"
    )
    parser.add_argument(
        "--any-state", action="store_true", help="build what is not committed, or not dated, too"
    )
    options = parser.parse_args()
    version = spanmq.__version__
    if not options.any_state and (problem := unready(version)):
        print(problem, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="spanmq-release-") as path:
        folder = Path(path)
        shutil.rmtree(DIST, ignore_errors=True)
        DIST.mkdir()
        tools = environment(folder / "tools", sys.executable, *TOOLS)
        for source in FOLDERS.values():
            run(tools, "-m", "build", "--outdir", DIST, source)
        wheels = {name: next(DIST.glob(f"{name}-{version}-*.whl")) for name in FOLDERS}
        run(tools, "-m", "twine", "check", "--strict", *wheels.values(), *DIST.glob("*.tar.gz"))
        for python in found_pythons():
            for name, wheel in wheels.items():
                alone = environment(folder / Path(python).name / name, python, str(wheel))
                try_import(alone, name, version)
                if name != "spanmq" and python == found_pythons()[0]:
                    describe(tools, name, version, alone)
        whole = environment(folder / "whole", sys.executable, f"{wheels['spanmq']}[all]")
        describe(tools, "spanmq", version, whole)
        run(whole.parent / "spanmq", "demo", "--rows", "10000", "--export", folder / "export", cwd=folder)
        if not options.quick:
            with tarfile.open(DIST / f"spanmq-{version}.tar.gz") as archive:
                archive.extractall(folder, filter="data")
            run("make", "test", cwd=folder / f"spanmq-{version}")
    print(f"spanmq {version} is in {DIST}: " + ", ".join(sorted(file.name for file in DIST.iterdir())))
    return 0


def unready(version: str) -> str | None:
    """Return what keeps this state from being a release, if anything does."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        return f"{version} is not the version of a release: change __version__ in src/spanmq/version.py"
    heading = re.compile(rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)$", re.MULTILINE)
    for folder in FOLDERS.values():
        changes = folder / "CHANGELOG.md"
        if not heading.search(changes.read_text()):
            return f'{changes.relative_to(ROOT)} has no heading "## {version} (YYYY-MM-DD)"'
    subprocess.run([sys.executable, ROOT / "tools/dump_release.py"], check=True)
    status = subprocess.run(
        ["git", "status", "--porcelain"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return f"not committed:\n{status.stdout}" if status.stdout else None


def try_import(python: Path, name: str, version: str) -> None:
    """Import a package, and the client of spanmq in the same version."""
    run(
        python,
        "-c",
        f"import spanmq, {name}; assert spanmq.__version__ == {version!r}; from spanmq import Client",
    )


def describe(tools: Path, name: str, version: str, environment: Path) -> None:
    """Write the list of what an environment contains."""
    bill = DIST / f"{name}-{version}.cdx.json"
    run(tools, "-m", "cyclonedx_py", "environment", "--output-reproducible", "-o", bill, environment)


def found_pythons() -> list[str]:
    """Return the interpreters of the versions that are supported, as far as they are here and start."""
    paths = [path for name in PYTHONS if (path := shutil.which(name))]
    starting = [
        path
        for path in paths
        if not subprocess.run([path, "-c", ""], check=False, capture_output=True).returncode
    ]
    return starting or [sys.executable]


def environment(folder: Path, python: str, *packages: str) -> Path:
    """Make a virtual environment with these packages, also of those that were built, and return its Python."""
    run(python, "-m", "venv", folder)
    made = folder / "bin" / "python"
    run(
        made,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--find-links",
        DIST,
        *packages,
    )
    return made


def run(*command: str | Path, cwd: Path | None = None) -> None:
    """Run a command, shown, without what leads Python to the checkout, and make to its ARGS."""
    print("$", *command, flush=True)
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "VIRTUAL_ENV", "MAKE", "MFLAGS", "ARGS"))
    }
    if cwd is not None:
        environ["SPANMQ_EMBEDDED_FOLDER"] = str(cwd / "server")
    subprocess.run([str(part) for part in command], cwd=cwd or ROOT.parent, check=True, env=environ)


if __name__ == "__main__":
    sys.exit(main())
