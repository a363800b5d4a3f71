"""The command line: one command a verb of the client, one a verb of the schema manager, and the demo."""

import sys


def main() -> None:
    """Run the program `spanmq`."""
    try:
        # Here and not at the top: Ctrl-C during the imports is Ctrl-C too.
        from spanmq.cli.app import app
    except KeyboardInterrupt:
        sys.exit(130)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("typer", "rich"):
            raise
        sys.stderr.write("spanmq: the command line is not installed\nhint: pip install 'spanmq[cli]'\n")
        sys.exit(1)
    app(prog_name="spanmq")
