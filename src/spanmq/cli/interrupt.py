"""Ctrl-C, where it must not cut a thing in two."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Final

HELD_BACK: Final = b"spanmq: finishing what is on its way (Ctrl-C again: don't wait)\n"


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Let the block end on Ctrl-C, say so, and raise KeyboardInterrupt then; a second Ctrl-C raises at once.

    Without it nobody knows what became of a statement that the server had done when the signal came.
    """
    came = False

    def note(*_: object) -> None:
        nonlocal came
        if came:
            raise KeyboardInterrupt
        came = True
        # Not print: the signal may have come in the middle of one.
        with contextlib.suppress(OSError):
            os.write(sys.stderr.fileno(), HELD_BACK)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt


class Stop:
    """Set by SIGTERM and by Ctrl-C, within its `with`: a loop looks at it and ends in good order."""

    def __init__(self) -> None:
        self._came = threading.Event()
        self.was_interrupted = False

    def wait(self, seconds: float) -> bool:
        """Wait until it is set, at most so long; tell whether it is."""
        return self._came.wait(seconds)

    def is_set(self) -> bool:
        """Tell whether a signal came."""
        return self._came.is_set()

    def __enter__(self) -> "Stop":
        self._before = {
            number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)
        }
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGINT:
            if self.was_interrupted:
                raise KeyboardInterrupt
            self.was_interrupted = True
        self._came.set()
