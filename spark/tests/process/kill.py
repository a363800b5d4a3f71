"""Kills a driver at named seams: one process, for its start is most of what a kill takes."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence

from spark.tests.process.driver import HIT, Act
from tests.patience import wait_until


def kill(acts: Sequence[Act], *, seconds: float = 300) -> None:
    """Let one driver come to the seams of all these acts, and kill it there with all its processes."""
    for act in acts:
        (act.folder / HIT).unlink(missing_ok=True)
    log = acts[0].folder / "driver.log"
    with log.open("w") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "spark.tests.process.driver", json.dumps([act.as_json() for act in acts])],
            start_new_session=True,
            stdout=said,
            stderr=said,
        )
    try:
        wait_until(lambda: all((act.folder / HIT).exists() for act in acts), process, seconds=seconds)
    except AssertionError as error:
        missed = [act.seam for act in acts if not (act.folder / HIT).exists()]
        raise AssertionError(f"{missed} was not hit: {log.read_text()}") from error
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
