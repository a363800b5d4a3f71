"""The command line: a few commands of every day, and for each noun its verbs."""

import contextlib
import os
import sys

__all__ = ["main"]

# Commands of other distributions, and the extra of each, for a hint before anything else of the program is imported.
OTHERS = {"serve": "service", "demo": "lab", "simulate": "lab", "receiver": "spark", "pipeline": "spark"}


def main() -> None:
    """Run the program `spanmq`."""
    # The parent process may have closed these; Python then has None in their places.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
    try:
        # Not at the top: Ctrl-C during the imports must be handled too.
        from spanmq.cli.app import app

        app(prog_name="spanmq")
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:  # but for a closed pipe, which Typer has dealt with
        # The rest of the buffer cannot be written either, and must not be tried again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        with contextlib.suppress(OSError):
            _report("not_written", *_unusable(error))
        sys.exit(1)
    except ImportError as error:
        missing = _missing(error)
        if missing is None:
            raise
        _report("extra_not_installed", *missing)
        sys.exit(1)


def _report(code: str, message: str, hint: str | None) -> None:
    """Write an error without Typer, as spanmq.cli.failure does."""
    if "--json" in sys.argv:
        import json

        said = json.dumps({"error": {"code": code, "message": message, "hint": hint}})
    else:
        said = f"spanmq: {message}" + (f"\nhint: {hint}" if hint else "")
    sys.stderr.write(f"{said}\n")
    sys.stderr.flush()


def _unusable(error: OSError) -> tuple[str, str | None]:
    """Return the file of the error, or that it is the output: a full disk, a closed terminal."""
    if error.filename is not None:
        return f"{error.filename} can't be used: {error.strerror}", None
    message = f"the output can't be written: {error.strerror or error}"
    return message, "The command itself may have been done: look before you repeat it."


def _missing(error: ImportError) -> tuple[str, str] | None:
    """Return what to install, if it is a package that no command can do without."""
    if (error.name or "").partition(".")[0] in ("typer", "rich"):
        extras = ["cli", *(OTHERS[word] for word in sys.argv[1:2] if word in OTHERS)]
        return "the command line is not installed", f"pip install 'spanmq[{','.join(extras)}]'"
    # psycopg reports this in its message only: neither its binary package nor the system's libpq is
    # installed.
    if "pq wrapper" in str(error) or "psycopg" in str(error):
        hint = "pip install 'spanmq[binary]' brings it; so does the system's package (Debian: libpq5)."
        return "psycopg has no libpq to call", hint
    return None
