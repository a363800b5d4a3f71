"""Ctrl-C and other signals that end a program, where they must not cut a thing in two."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final

HELD_BACK: Final = b"spanmq: finishing what is on its way (Ctrl-C again: don't wait)\n"
# Besides Ctrl-C: a request to stop, or a closed terminal.
ENDING: Final = (signal.SIGTERM, signal.SIGHUP)


class Ended(KeyboardInterrupt):
    """A signal came that ends the program, as Ctrl-C does."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextlib.contextmanager
def handled(handler: Callable[[int, FrameType | None], Any], *numbers: int) -> Iterator[None]:
    """Handle signals within the block, except a SIGHUP that `nohup` ignores."""
    chosen = [
        number
        for number in numbers
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN
    ]
    before = {number: signal.signal(number, handler) for number in chosen}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def end(number: int, _: FrameType | None) -> None:
    """Handle a signal like Ctrl-C: the current call is cancelled, and its transaction rolled back."""
    raise Ended(number)


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Finish the block after such a signal, print a message, and raise Ended then; a second one raises at
    once.

    Without it the result of a statement that was running would be unknown.
    """
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if came:
            end(number, frame)
        came.append(number)
        # Not print, which the signal may have interrupted.
        with contextlib.suppress(OSError):
            os.write(sys.stderr.fileno(), HELD_BACK)

    with handled(note, signal.SIGINT, *ENDING):
        yield
    if came:
        raise Ended(came[0])


class Stop:
    """Set by Ctrl-C, SIGTERM and SIGHUP, within its `with`: a loop looks at it and ends in good order."""

    def __init__(self) -> None:
        self._came = threading.Event()
        self.was_interrupted = False

    def wait(self, seconds: float) -> bool:
        """Wait until a signal arrives, for up to `seconds`; return whether one did."""
        return self._came.wait(seconds)

    def is_set(self) -> bool:
        """Return whether a signal has arrived."""
        return self._came.is_set()

    def __enter__(self) -> "Stop":
        self._handled = handled(self._note, signal.SIGINT, *ENDING)
        self._handled.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._handled.__exit__(None, None, None)

    def _note(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGINT:
            if self.was_interrupted:
                raise KeyboardInterrupt
            self.was_interrupted = True
        self._came.set()
