"""The generator of the synchronous twins reports what is stale, and rules that match nothing."""

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def generator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The generator, in a folder with one module and one test without twins."""
    specification = importlib.util.spec_from_file_location("generate_sync", ROOT / "tools/generate_sync.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "RULES", {r"\basync ": "", r"\bawait ": ""})
    for name in ("src/spanmq/client/_async/a.py", "tests/client/_async/test_a.py"):
        source = tmp_path / name
        source.parent.mkdir(parents=True)
        source.write_text("async def f() -> None:\n    await g()\n")
    return module


def run(generator: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["generate_sync", *arguments])
    code: int = generator.main()
    return code


def test_check_reports_a_stale_twin_and_does_not_write_it(
    generator: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    twin = tmp_path / "src/spanmq/client/_sync/a.py"
    assert run(generator, monkeypatch, "--check") == 1
    assert "+def f() -> None:" in capsys.readouterr().out
    assert not twin.exists()
    assert run(generator, monkeypatch) == 0
    header, code = twin.read_text().split("\n\n", 1)
    assert "Generated from src/spanmq/client/_async/a.py" in header
    assert code == "\ndef f() -> None:\n    g()\n"
    assert run(generator, monkeypatch, "--check") == 0


def test_tests_are_written_when_their_source_has_changed_and_go_with_it(
    generator: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, twin = (tmp_path / f"tests/client/{each}/test_a.py" for each in ("_async", "_sync"))
    assert run(generator, monkeypatch, "--tests") == 0
    assert twin.read_text().endswith("def f() -> None:\n    g()\n")
    source.write_text("async def h() -> None: ...\n")
    os.utime(source, ns=(2 * time.time_ns(),) * 2)
    assert run(generator, monkeypatch, "--tests") == 0
    assert "def h() -> None: ..." in twin.read_text()
    source.unlink()
    assert run(generator, monkeypatch, "--tests") == 0
    assert not twin.exists()


def test_rule_that_matches_nothing_is_an_error(
    generator: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(generator.RULES, r"\bAsyncNothing\b", "Nothing")
    assert run(generator, monkeypatch) == 1
    assert "AsyncNothing" in capsys.readouterr().err


def test_committed_twins_are_fresh() -> None:
    program = [sys.executable, str(ROOT / "tools/generate_sync.py"), "--check"]
    checked = subprocess.run(program, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
