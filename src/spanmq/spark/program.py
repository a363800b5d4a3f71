"""Small shell programs that start another one as Spark would not: put in place where they are missing."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path


def private_folder(name: str) -> Path:
    """Return a temporary folder to which no other user can write; the same one each time."""
    folder = Path(tempfile.gettempdir()) / f"{name}-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022:
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
