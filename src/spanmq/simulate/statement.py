"""The statements of the simulator, which are files: built-in ones in `sql/simulate`, or the user's."""

import importlib.resources
from pathlib import Path
from typing import Final

from psycopg import sql

from spanmq.errors import InvalidArgumentError

FOLDER: Final = importlib.resources.files("spanmq") / "sql" / "simulate"


def read(name: str) -> bytes:
    """Return a built-in statement."""
    return (FOLDER / f"{name}.sql").read_bytes()


def composed(name: str, **names: str) -> sql.Composed:
    """Return a built-in statement with names in place of {places}."""
    text = read(name).decode()
    return sql.SQL(text).format(**{place: sql.Identifier(each) for place, each in names.items()})


def read_file(path: Path) -> bytes:
    """Return a statement of the user."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise InvalidArgumentError(f"{path} can't be read: {error.strerror}") from error
    if not text.strip():
        raise InvalidArgumentError(f"{path} is empty")
    return text
