"""Small shell programs that start another one as Spark would not: put in place where they are missing."""

from __future__ import annotations

import tempfile
from pathlib import Path


def write_program(path: Path, text: str) -> None:
    """Put a program in place, unless it is there."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not path.exists() or path.read_text("utf-8") != text:
        # Two may do this at once: each puts a whole file in place.
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            file.write(text)
        Path(file.name).chmod(0o755)
        Path(file.name).replace(path)
