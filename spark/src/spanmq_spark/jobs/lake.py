"""The place of a lake: a folder, or a prefix of an object store (S3, GCS, Azure) by its URI.

Files are written once, whole, and have names within the lake. A store's settings are those of its environment
variables (AWS_…, GOOGLE_…, AZURE_…), which obstore and deltalake read alike.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import tempfile
import uuid
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, Final

from spanmq.errors import ExtraNotInstalledError, InvalidArgumentError

DRAFT: Final = ".draft"
READ_BYTES: Final = 1 << 20


class FolderLake:
    """A lake on a file system. What counts is on the disk before it is seen."""

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()
        self.uri = str(self._path)
        self.folder = self._path.name

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, None without one."""
        with contextlib.suppress(FileNotFoundError):
            return (self._path / name).read_bytes()
        return None

    def create(self, name: str, data: bytes) -> None:
        """Write a file; raises FileExistsError if there is one of that name, then nothing is changed."""
        draft = self._draft(name, data)
        try:
            # A link fails where the name is taken; a rename would not.
            os.link(draft, self._path / name)
            _sync(draft.parent)
        finally:
            draft.unlink()

    def put(self, name: str, data: bytes) -> None:
        """Write a file, or replace it."""
        path = self._path / name
        self._draft(name, data).replace(path)
        _sync(path.parent)

    def delete(self, name: str) -> None:
        """Delete a file, if there is one."""
        with contextlib.suppress(FileNotFoundError):
            (self._path / name).unlink()
            _sync((self._path / name).parent)

    def sizes(self, prefix: str, before: datetime | None = None) -> dict[str, int]:
        """Return the names, in order, and sizes of the files in a folder and those in it; `before`: only older ones."""
        seconds = before.timestamp() if before is not None else math.inf
        paths = sorted(path for path in (self._path / prefix).rglob("*") if path.is_file())
        files = ((str(path.relative_to(self._path)), path.stat()) for path in paths)
        return {name: status.st_size for name, status in files if status.st_mtime < seconds}

    def beside(self, folder: str) -> set[str]:
        """Return the names of the files and folders that are in a folder itself; "" is the lake's."""
        path = self._path / folder
        return {entry.name for entry in path.iterdir()} if path.exists() else set()

    @contextlib.contextmanager
    def writer(self, name: str) -> Iterator[IO[bytes]]:
        """Open a new file to write for a block; it exists when that has ended."""
        path = self._path / name
        _make(path.parent)
        with path.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        _sync(path.parent)

    def reader(self, name: str) -> Any:
        """Open a file to read."""
        return (self._path / name).open("rb")

    def _draft(self, name: str, data: bytes) -> Path:
        path = self._path / name
        draft = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}{DRAFT}")
        _make(path.parent)
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return draft


def _make(folder: Path) -> None:
    """Create a folder and those above it, on the disk."""
    if not folder.is_dir():
        _make(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync(folder.parent)


def _sync(folder: Path) -> None:
    """Write the names that a folder has to the disk: the sync of a file does not write its name."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


class StoreLake:
    """A lake in an object store, which must have conditional writes."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.folder = uri.rpartition("/")[2]
        self._store = _store(uri)
        import obstore

        self._obstore: Any = obstore

    def __reduce__(self) -> tuple[type[StoreLake], tuple[str]]:
        # A task opens the store again.
        return StoreLake, (self.uri,)

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, None without one."""
        with contextlib.suppress(FileNotFoundError):
            return bytes(self._obstore.get(self._store, name).bytes())
        return None

    def create(self, name: str, data: bytes) -> None:
        """Write a file; raises FileExistsError if there is one of that name, then nothing is changed."""
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        try:
            self._obstore.put(self._store, name, data, mode="create", use_multipart=False)
        except (AlreadyExistsError, PreconditionError) as error:
            # Or a try before that one came through, whose answer was lost.
            if self.read(name) != data:
                raise FileExistsError(name) from error

    def put(self, name: str, data: bytes) -> None:
        """Write a file, or replace it."""
        self._obstore.put(self._store, name, data)

    def delete(self, name: str) -> None:
        """Delete a file, if there is one."""
        with contextlib.suppress(FileNotFoundError):
            self._obstore.delete(self._store, name)

    def sizes(self, prefix: str, before: datetime | None = None) -> dict[str, int]:
        """Return the names, in order, and sizes of the files in a folder and those in it; `before`: only older ones."""
        files = [file for batch in self._obstore.list(self._store, prefix) for file in batch]
        files = [file for file in files if before is None or file["last_modified"] < before]
        return {file["path"]: file["size"] for file in sorted(files, key=lambda file: file["path"])}

    def beside(self, folder: str) -> set[str]:
        """Return the names of the files and folders that are in a folder itself; "" is the lake's."""
        listing = self._obstore.list_with_delimiter(self._store, folder or None)
        names = (*listing["common_prefixes"], *(file["path"] for file in listing["objects"]))
        return {name.rpartition("/")[2] for name in names}

    @contextlib.contextmanager
    def writer(self, name: str) -> Iterator[IO[bytes]]:
        """Open a new file to write for a block; it exists when that has ended."""
        with tempfile.TemporaryFile() as file:
            yield file
            file.seek(0)
            self._obstore.put(self._store, name, file)

    def reader(self, name: str) -> Any:
        """Open a file to read."""
        return io.BufferedReader(_Reader(self._store, name), READ_BYTES)


class _Reader(io.RawIOBase):
    """A file of a store, of which a reader takes the parts that it needs."""

    def __init__(self, store: Any, name: str) -> None:
        import obstore

        self._store, self._name, self._place = store, name, 0
        self._size = int(obstore.head(store, name)["size"])

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._place = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        return self._place

    def readinto(self, buffer: Any) -> int:
        import obstore

        end = min(self._place + len(buffer), self._size)
        if end <= self._place:
            return 0
        data = bytes(obstore.get_range(self._store, self._name, start=self._place, end=end))
        buffer[: len(data)] = data
        self._place += len(data)
        return len(data)


@lru_cache
def _store(uri: str) -> Any:
    try:
        from obstore.exceptions import BaseError
        from obstore.store import from_url
    except ImportError as error:
        raise ExtraNotInstalledError("obstore is not installed", extra="spark") from error
    try:
        return from_url(uri)
    except (BaseError, ValueError) as error:
        raise InvalidArgumentError(
            f"{uri} is not a lake: {error}", hint="It is a folder, or a URI such as s3://bucket/folder."
        ) from error


Lake = FolderLake | StoreLake


def lake_at(place: str | Path) -> Lake:
    """Return the lake of a folder or a URI; raises InvalidArgumentError for one that no store has."""
    text = str(place)
    if "://" not in text:
        return FolderLake(Path(text))
    if text.startswith("file://"):
        return FolderLake(Path(text.removeprefix("file://")))
    return StoreLake(text.rstrip("/"))
