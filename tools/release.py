"""Build a release in `dist` and try it outside the checkout: release.py [--quick] [--any-state].

It begins with the dump of this version's database for tests of upgrades (dump_release.py), which must be committed.
The wheel is made of the source distribution. It is installed by itself for each Python that is found, imported,
and asked for its version; with extras it runs the demo. The source distribution runs its tests (not with --quick). The
list of what an installation with all extras contains (SBOM) is in CycloneDX's format.
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
    with tempfile.TemporaryDirectory(prefix="spanmq-release-") as name:
        folder = Path(name)
        tools = environment(folder / "tools", sys.executable, *TOOLS)
        shutil.rmtree(DIST, ignore_errors=True)
        run(tools, "-m", "build", "--outdir", DIST, ROOT)
        [wheel], [source] = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
        run(tools, "-m", "twine", "check", "--strict", wheel, source)
        for python in found_pythons():
            alone = environment(folder / Path(python).name, python, str(wheel))
            run(
                alone,
                "-c",
                f"import spanmq; assert spanmq.__version__ == {version!r}; from spanmq import Client",
            )
        whole = environment(folder / "whole", sys.executable, f"{wheel}[all]")
        bill = DIST / f"spanmq-{version}.cdx.json"
        run(tools, "-m", "cyclonedx_py", "environment", "--output-reproducible", "-o", bill, whole)
        run(whole.parent / "spanmq", "demo", "--rows", "10000", "--export", folder / "export", cwd=folder)
        if not options.quick:
            with tarfile.open(source) as archive:
                archive.extractall(folder, filter="data")
            run("make", "test", cwd=folder / f"spanmq-{version}")
    print(f"spanmq {version} is in {DIST}: " + ", ".join(sorted(each.name for each in DIST.iterdir())))
    return 0


def unready(version: str) -> str | None:
    """Return what keeps this state from being a release, if anything does."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        return f"{version} is not the version of a release: change __version__ in src/spanmq/version.py"
    if not re.search(
        rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    ):
        return f'CHANGELOG.md has no heading "## {version} (YYYY-MM-DD)"'
    subprocess.run([sys.executable, ROOT / "tools/dump_release.py"], check=True)
    status = subprocess.run(
        ["git", "status", "--porcelain"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return f"not committed:\n{status.stdout}" if status.stdout else None


def found_pythons() -> list[str]:
    """Return the interpreters of the versions that are supported, as far as they are here and start."""
    found = [path for name in PYTHONS if (path := shutil.which(name))]
    starting = [
        each
        for each in found
        if not subprocess.run([each, "-c", ""], check=False, capture_output=True).returncode
    ]
    return starting or [sys.executable]


def environment(folder: Path, python: str, *packages: str) -> Path:
    """Make a virtual environment with these packages, and return its Python."""
    run(python, "-m", "venv", folder)
    made = folder / "bin" / "python"
    run(made, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages)
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
    subprocess.run([str(each) for each in command], cwd=cwd or ROOT.parent, check=True, env=environ)


if __name__ == "__main__":
    sys.exit(main())
