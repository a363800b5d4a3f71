"""How values of PostgreSQL become Python's where psycopg's own loaders do not fit."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import psycopg
from psycopg import AsyncCursor, Cursor
from psycopg.abc import AdaptContext
from psycopg.adapt import Buffer, Loader, Transformer
from psycopg.pq import Format
from psycopg.rows import tuple_row
from psycopg.types.datetime import TimestamptzBinaryLoader

from spanmq.client.rows import EARLIEST, LATEST

AnyCursor = Cursor[Any] | AsyncCursor[Any]


class JsonLoader(Loader):
    """Leave JSON as bytes: the codec reads it."""

    format = Format.BINARY

    def load(self, data: Buffer) -> bytes:
        """Read a value."""
        # The first byte is the version of jsonb's wire format, always 1.
        return bytes(data)[1:]


class ForeignJsonLoader(JsonLoader):
    """Return JSON in UTF-8, as a decoder expects, whatever the encoding of the caller's connection."""

    def load(self, data: Buffer) -> bytes:
        """Read a value."""
        encoding = self.connection.info.encoding if self.connection else "utf-8"
        return super().load(data).decode(encoding).encode()


class AsciiTextLoader(Loader):
    """Return a str: without an encoding (SQL_ASCII) psycopg returns bytes."""

    format = Format.BINARY

    def load(self, data: Buffer) -> str:
        """Read a value."""
        return bytes(data).decode(errors="replace")


class TimeLoader(Loader):
    """Read any time that PostgreSQL has."""

    format = Format.BINARY

    def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
        super().__init__(oid, context)
        self._usual = TimestamptzBinaryLoader(oid, context)

    def load(self, data: Buffer) -> datetime:
        """Read a value."""
        try:
            return self._usual.load(data)
        except psycopg.DataError:
            # Microseconds from the year 2000 on, the sign first.
            return EARLIEST if bytes(data)[0] & 0x80 else LATEST


def register_loaders(cursor: AnyCursor) -> None:
    """Have a cursor read JSON and texts, in whatever encoding the connection has, as calls need them."""
    encoding = cursor.connection.info.encoding
    foreign = encoding not in ("utf-8", "ascii")
    cursor.adapters.register_loader("jsonb", ForeignJsonLoader if foreign else JsonLoader)
    if encoding == "ascii":
        for kind in ("text", "varchar", "name"):
            cursor.adapters.register_loader(kind, AsciiTextLoader)


def fetch_any_times(cursor: AnyCursor) -> Sequence[Sequence[Any]]:
    """Return all rows of a result, with a slower loader: one of its times is outside Python's range."""
    result = cursor.pgresult
    if result is None:
        raise psycopg.DataError("the result is gone")
    cursor.adapters.register_loader("timestamptz", TimeLoader)
    reader = Transformer(cursor)
    reader.set_pgresult(result)
    return reader.load_rows(0, result.ntuples, tuple_row(cursor))


def columns_of(cursor: AnyCursor) -> tuple[str, ...]:
    """Return the names of a result's columns; not from `description`, which looks each type up."""
    result = cursor.pgresult
    if result is None:
        return ()
    return tuple((result.fname(number) or b"").decode() for number in range(result.nfields))
