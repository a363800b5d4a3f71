"""How values of PostgreSQL become Python's where psycopg's own loaders do not fit."""

from __future__ import annotations

from datetime import datetime

import psycopg
from psycopg.abc import AdaptContext
from psycopg.adapt import Buffer, Loader
from psycopg.pq import Format
from psycopg.types.datetime import TimestamptzBinaryLoader

from spanmq.client.rows import EARLIEST, LATEST


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
