"""The command line: one command a verb of the client, one a verb of the schema manager, and the demo."""

import contextlib
import os
import sys


def main() -> None:
    """Run the program `spanmq`."""
    # Whoever starts us may have closed these; Python then has None in their places.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
    try:
        # Here and not at the top: Ctrl-C during the imports is Ctrl-C too.
        from spanmq.cli.app import app

        app(prog_name="spanmq")
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:  # but for a closed pipe, which Typer has dealt with
        # What is left in the buffer can't be written either, and must not be tried again at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        with contextlib.suppress(OSError):
            sys.stderr.write(_unusable(error))
            sys.stderr.flush()
        sys.exit(1)
    except ImportError as error:
        missing = _missing(error)
        if missing is None:
            raise
        sys.stderr.write(missing)
        sys.exit(1)


def _unusable(error: OSError) -> str:
    """Say which file it is, or else that it is the output: a full disk, a terminal that is gone."""
    if error.filename is not None:
        return f"spanmq: {error.filename} can't be used: {error.strerror}\n"
    return (
        f"spanmq: the output can't be written: {error.strerror or error}\n"
        "hint: The command itself may have been done: look before you repeat it.\n"
    )


def _missing(error: ImportError) -> str | None:
    """Say what to install, if it is a package that no command can do without."""
    if (error.name or "").partition(".")[0] in ("typer", "rich"):
        return "spanmq: the command line is not installed\nhint: pip install 'spanmq[cli]'\n"
    # psycopg says so in words only: it is there, and has neither its binary package nor the machine's libpq.
    if "pq wrapper" in str(error) or "psycopg" in str(error):
        return (
            "spanmq: psycopg has no libpq to call\n"
            "hint: pip install 'spanmq[binary]' brings it; so does the system's package (Debian: libpq5).\n"
        )
    return None
