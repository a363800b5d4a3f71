"""Wake-up of idle workers: announcements that there may be messages. See docs/internals/wake-up.md."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg

from spanmq.client._sync.listener import Channels, Due
from spanmq.errors import ConnectionFailedError
from spanmq.simulate.engine import Site


class Announcements:
    """A connection that listens for some queues.

    While there are no messages it may be used for other statements.
    """

    def __init__(self, site: Site, queues: Sequence[str]) -> None:
        self._queues = tuple(queues)
        try:
            self.connection = psycopg.connect(site.dsn, autocommit=True, application_name=site.name)
        except psycopg.OperationalError as error:
            raise ConnectionFailedError(str(error).strip()) from error
        self._channels = Channels(self.connection)

    def expect(self) -> bool:
        """Announce that a worker waits, unless that was done a moment ago; return whether to poll before the
        wait.
        """
        return sum(self._channels.attend(queue) for queue in self._queues) > 0

    def hear(self, seconds: float) -> int:
        """Wait for an announcement for up to `seconds`; return the number of announcements."""
        heard = 0
        if seconds:
            heard = sum(1 for _ in self.connection.notifies(timeout=seconds, stop_after=1))
        return heard + sum(1 for _ in self.connection.notifies(timeout=0))

    def look_ahead(self) -> Due:
        """Return when the next message of any of the queues becomes visible."""
        seconds = [self._channels.look_ahead(queue) for queue in self._queues]
        return Due(min((each for each in seconds if each is not None), default=None))

    def close(self) -> None:
        """Disconnect."""
        self.connection.close()
