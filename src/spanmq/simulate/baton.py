"""Who of the idle workers of a machine waits for the next message: one, and the others wait for its turn.

Without it each announcement wakes all who are idle, and all but one of them ask in vain. The baton is a lock
of the kernel on a file: whoever dies with it has passed it on. In the file stands how many announcements its
holders have looked after, so that who takes it knows whether there is anything new.
"""

import fcntl
import os
import struct
from pathlib import Path
from typing import Final

COUNT: Final = struct.Struct("q")


class Baton:
    """One lock of one process. All hear the same announcements, but count them from different ones on."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._heard = 0
        # What the file would show if this process had just looked; None until it once did.
        self._offset: int | None = None
        self.is_held = False

    def hear(self, announcements: int) -> None:
        """Count announcements."""
        self._heard += announcements

    def take(self) -> None:
        """Wait for it."""
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        self.is_held = True

    def is_wanted(self) -> bool:
        """Tell whether another has it: somebody of this machine is idle."""
        if self.is_held:
            return False
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        return False

    def is_news(self) -> bool:
        """Tell whether this process heard of something that no holder has looked after yet."""
        return self._offset is None or self._heard + self._offset > self._read()

    def pass_on(self, *, is_all: bool) -> None:
        """Let another have it; `is_all`: the last look gave everything that there was."""
        if not self.is_held:
            return
        shared = self._read()
        if self._offset is None:
            self._offset = shared - self._heard
        if is_all:
            os.pwrite(self._descriptor, COUNT.pack(self._heard + self._offset), 0)
        else:
            # One less than was heard: the next one looks.
            os.pwrite(self._descriptor, COUNT.pack(min(shared, self._heard + self._offset) - 1), 0)
        self.is_held = False
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Let go of it for good."""
        os.close(self._descriptor)

    def _read(self) -> int:
        found = os.pread(self._descriptor, COUNT.size, 0)
        return int(COUNT.unpack(found)[0]) if found else 0
