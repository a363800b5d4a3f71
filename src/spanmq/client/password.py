"""The password of each new connection from a function or a command: for one that rotates, or a token that expires."""

import os
import shlex
import subprocess
from collections.abc import Callable
from functools import partial
from typing import Final

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from spanmq.errors import ConnectionFailedError

Password = Callable[[], str]

VARIABLE: Final = "SPANMQ_PASSWORD_COMMAND"
COMMAND_SECONDS: Final = 10.0
# The longest part of a failed command's stderr that an error shows.
REASON_MAX: Final = 500


def password_for(dsn: str, password: Password | None = None) -> Password | None:
    """Return the function for the passwords of a DSN's connections; None if they have the DSN's own.

    It is `password`; without it, for a DSN that has no password, the command in SPANMQ_PASSWORD_COMMAND.
    """
    command = os.environ.get(VARIABLE)
    if password is not None or not command:
        return password
    try:
        has_own = bool(conninfo_to_dict(dsn).get("password"))
    except psycopg.ProgrammingError:
        return None  # connecting reports it
    return None if has_own else partial(_printed_by, command)


def with_password(dsn: str, password: Password | None) -> str:
    """Return a DSN for one connection, with the password that the function returns now.

    Raises ConnectionFailedError if the function fails or returns no text, psycopg.ProgrammingError for a DSN that
    cannot be read.
    """
    if password is None:
        return dsn
    try:
        text: object = password()
    except ConnectionFailedError:
        raise
    except Exception as error:  # the caller's function may raise anything
        raise ConnectionFailedError(f"the function for the password failed: {error!r}") from error
    if not isinstance(text, str) or not text:
        raise ConnectionFailedError("the function for the password did not return a string")
    return make_conninfo(dsn, password=text)


def _printed_by(command: str) -> str:
    """Run a command, without a shell, and return its output without the line end. No error shows the output."""
    try:
        ended = subprocess.run(
            shlex.split(command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        text = ended.stdout.decode().rstrip("\r\n")
    except subprocess.TimeoutExpired:
        raise ConnectionFailedError(
            f"the command in {VARIABLE} did not end within {COMMAND_SECONDS:g} s"
        ) from None
    except UnicodeDecodeError:
        raise ConnectionFailedError(f"the output of the command in {VARIABLE} is not UTF-8") from None
    except (OSError, ValueError) as error:
        raise ConnectionFailedError(f"the command in {VARIABLE} can't be run: {error}") from None
    if ended.returncode or not text:
        reason = " ".join(ended.stderr.decode(errors="replace").split())[:REASON_MAX]
        raise ConnectionFailedError(
            f"the command in {VARIABLE} failed: exit code {ended.returncode}, {reason or 'no output'}"
        )
    return text
