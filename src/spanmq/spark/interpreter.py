"""Python for Spark's own processes on this machine: with PySpark as it is installed.

Spark puts the zip of PySpark first in their path. Python keeps nothing that it compiles out of a zip, so each
process, also that of every stream, would compile it all again: 1.1 s of processor time, where 0.25 s will do.
That of a stream, for which Spark waits only ten seconds, connects before it imports PySpark. Those that plan
for a data source come from a daemon that no setting names: it is ours, too (daemon.py).
"""

from __future__ import annotations

import os
import sys
import zlib

from spanmq.spark.connect_first import SOCKET
from spanmq.spark.program import private_folder, write_program


def python() -> str:
    """Return the program that Spark starts as Python.

    With the user's own Spark (SPARK_HOME) it is this Python, because installed packages may not fit another
    one.
    """
    if os.environ.get("SPARK_HOME"):
        return sys.executable
    program = private_folder("spanmq-python") / f"{zlib.crc32(sys.executable.encode()):x}" / "python"
    text = (
        "#!/bin/sh\nset -f\nIFS=:\nkept=\n"
        "for each in $PYTHONPATH; do case $each in */pyspark/python/lib/*.zip) ;; "
        '*) kept="$kept${kept:+:}$each" ;; esac; done\n'
        # A daemon may take its time to start, so Spark passes a folder for sockets, not one socket.
        f'if [ -n "${SOCKET}" ] && [ "$1" = -m ]; then shift; set -- -m spanmq.spark.connect_first "$@"; fi\n'
        'if [ "$1 $2" = "-m pyspark.daemon" ]; then shift 2; set -- -m spanmq.spark.daemon "$@"; fi\n'
        f'PYTHONPATH=$kept exec "{sys.executable}" "$@"\n'
    )
    write_program(program, text)
    return str(program)
