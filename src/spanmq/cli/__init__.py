"""The command line: one command a verb of the client, one a verb of the schema manager, and the demo."""

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
        from spanmq.cli.commands import program

        app = program(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("typer", "rich"):
            raise
        sys.stderr.write("spanmq: the command line is not installed\nhint: pip install 'spanmq[cli]'\n")
        sys.exit(1)
    app(prog_name="spanmq")
