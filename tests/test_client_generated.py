"""The synchronous twins are those that the generator makes, and the generator has no dead rules."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def generator() -> ModuleType:
    specification = importlib.util.spec_from_file_location(
        "generate_sync", ROOT / "tools" / "generate_sync.py"
    )
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_committed_twins_are_fresh() -> None:
    program = [sys.executable, str(ROOT / "tools" / "generate_sync.py"), "--check"]
    checked = subprocess.run(program, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_twins_are_not_asynchronous(generator: ModuleType) -> None:
    for module in generator.MODULES:
        text = (ROOT / "src" / "spanmq" / f"{module}.py").read_text()
        code = text.split("\n", 1)[1].replace("`_async`", "")
        assert "async" not in code.lower()
        assert not re.search(r"\bawait\b", code)


@pytest.fixture
def workshop(generator: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one module and its twin, for the generator to work in."""
    monkeypatch.setattr(generator, "SOURCES", tmp_path)
    monkeypatch.setattr(generator, "MODULES", ("client",))
    monkeypatch.setattr(generator, "RULES", {r"\basync ": "", r"\bawait ": ""})
    (tmp_path / "client_async.py").write_text("async def f() -> None:\n    await g()\n")
    return tmp_path


def test_check_reports_a_stale_twin_and_writes_nothing(
    generator: ModuleType, workshop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["generate_sync", "--check"])
    assert generator.main() == 1
    assert "+def f() -> None:" in capsys.readouterr().out
    assert not (workshop / "client.py").exists()
    monkeypatch.setattr(sys, "argv", ["generate_sync"])
    assert generator.main() == 0
    assert "def f() -> None:\n    g()" in (workshop / "client.py").read_text()
    monkeypatch.setattr(sys, "argv", ["generate_sync", "--check"])
    assert generator.main() == 0


@pytest.mark.usefixtures("workshop")
def test_rule_that_matches_nothing_is_an_error(
    generator: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(generator.RULES, r"\bAsyncNothing\b", "Nothing")
    monkeypatch.setattr(sys, "argv", ["generate_sync"])
    assert generator.main() == 1
    assert "AsyncNothing" in capsys.readouterr().err
