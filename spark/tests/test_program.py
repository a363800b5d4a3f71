"""The folder in which programs for Spark lie."""

import os
import tempfile
from pathlib import Path

import pytest

from spanmq_spark.programs import private_folder


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_folder_is_the_same_each_time_and_nobody_elses() -> None:
    folder = private_folder("spanmq-python")
    assert private_folder("spanmq-python") == folder
    assert folder.stat().st_mode & 0o777 == 0o700


def test_folder_into_which_others_can_write_is_not_taken(temporary: Path) -> None:
    squatted = private_folder("spanmq-python")
    squatted.chmod(0o777)
    (squatted / "python").write_text("#!/bin/sh\nexit 1\n")
    assert private_folder("spanmq-python") != squatted


def test_folder_of_another_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    # Made by this user under the name of the next one.
    user = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: user)
    folder = private_folder("spanmq-python")
    assert folder.name != f"spanmq-python-{user}"
    assert folder.stat().st_mode & 0o777 == 0o700


def test_link_to_elsewhere_is_not_followed(temporary: Path) -> None:
    place = private_folder("spanmq-python")
    place.rmdir()
    place.symlink_to(temporary / "elsewhere")
    (temporary / "elsewhere").mkdir(mode=0o700)
    assert private_folder("spanmq-python").parent == temporary
    assert private_folder("spanmq-python") != place
    assert list((temporary / "elsewhere").iterdir()) == []


def test_file_in_its_place_is_no_folder(temporary: Path) -> None:
    place = private_folder("spanmq-python")
    place.rmdir()
    place.write_text("")
    assert private_folder("spanmq-python").is_dir()
