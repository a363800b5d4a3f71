"""Selects the idle worker of a machine that waits for the next message; the others wait for their turn.

Without it each announcement would wake all idle workers, and all but one of them would poll in vain. The
baton is a kernel lock on a file: the kernel releases it when its holder dies. The file contains the number of
announcements that its holders have handled, so that the next holder knows whether there are new ones.
"""

import fcntl
import os
import struct
from pathlib import Path
from typing import Final

COUNT: Final = struct.Struct("q")


class Baton:
    """The lock in one process.

    All processes hear the same announcements, but start to count at different times.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._heard = 0
        # The file's count if this process had just polled; None until it has done so once.
        self._offset: int | None = None
        self.is_held = False

    def hear(self, announcements: int) -> None:
        """Count announcements."""
        self._heard += announcements

    def take(self) -> None:
        """Wait for the lock."""
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        self.is_held = True

    def is_wanted(self) -> bool:
        """Return whether another worker of this machine holds the lock, and so is idle."""
        if self.is_held:
            return False
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        return False

    def is_news(self) -> bool:
        """Return whether this process heard of an announcement that no holder has handled yet."""
        return self._offset is None or self._heard + self._offset > self._read()

    def pass_on(self, *, is_all: bool) -> None:
        """Release the lock; `is_all`: the last poll returned all visible messages."""
        if not self.is_held:
            return
        shared = self._read()
        if self._offset is None:
            self._offset = shared - self._heard
        if is_all:
            os.pwrite(self._descriptor, COUNT.pack(self._heard + self._offset), 0)
        else:
            # One less than was heard, so that the next holder polls.
            os.pwrite(self._descriptor, COUNT.pack(min(shared, self._heard + self._offset) - 1), 0)
        self.is_held = False
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def _read(self) -> int:
        found = os.pread(self._descriptor, COUNT.size, 0)
        return int(COUNT.unpack(found)[0]) if found else 0
