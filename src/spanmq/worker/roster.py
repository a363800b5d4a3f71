"""The shards that a worker receives from: it follows the shard map of their queue."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final, Literal

from spanmq.client import functions
from spanmq.errors import InvalidArgumentError, QueueNotFoundError, SpanmqError
from spanmq.model.shard_map import ShardMap, newest
from spanmq.worker.session import Session

# How soon an added shard is received from; its groups wait for that.
LOOK_SECONDS: Final = 2.0


class Roster:
    """Polls the newest map in all databases; `on_shards` is called with the shards and the server of each.

    With `chosen` it is called with these only. A shard that has left the map is dropped when it is empty.
    """

    def __init__(
        self,
        queue: str,
        sessions: Mapping[str, Session],
        chosen: Iterable[str] | None,
        on_shards: Callable[[dict[str, str]], Awaitable[None]],
    ) -> None:
        self._queue = queue
        self._sessions = sessions
        self._chosen = None if chosen is None else frozenset(chosen)
        self._on_shards = on_shards
        self._known: dict[str, str] = {}

    async def begin(self) -> dict[str, str]:
        """Return the shards at the start; every server must answer, and every chosen shard must exist."""
        found = [
            await session.run(lambda client: client.admin.run(functions.get_shards(self._queue)))
            for session in self._sessions.values()
        ]
        there = newest(found)
        if there is None:
            raise QueueNotFoundError(
                f"{self._queue} has no shards", hint="ShardedQueue.create() creates them.", queue=self._queue
            )
        if unknown := (self._chosen or frozenset()) - there.all.keys():
            raise InvalidArgumentError(
                f"{self._queue} does not have the shards {', '.join(sorted(unknown))}", queue=self._queue
            )
        self._known = self._wanted(there)
        if lost := set(self._known.values()) - self._sessions.keys():
            raise InvalidArgumentError(
                f"the map names servers without an address: {', '.join(sorted(lost))}", queue=self._queue
            )
        return dict(self._known)

    async def run(self) -> None:
        """Follow the map until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            # After an error of the database the session reconnects, and the next poll follows.
            with suppress(SpanmqError):
                wanted = await self._look()
                if wanted != self._known:
                    await self._on_shards(wanted)
                    self._known = wanted

    async def _look(self) -> dict[str, str]:
        """Return the shards to receive from now, including shards that left the map and are not empty."""
        found = await asyncio.gather(*[self._map_of(session) for session in self._sessions.values()])
        there = newest(each for each in found if isinstance(each, ShardMap))
        wanted = {} if there is None else self._wanted(there)
        # A server without a known address is for other workers.
        wanted = {name: server for name, server in wanted.items() if server in self._sessions}
        is_complete = "away" not in found
        for name, server in self._known.items():
            # An unreachable server may have the newer map.
            if name not in wanted and not (is_complete and await self._is_drained(name, server)):
                wanted[name] = server
        return wanted

    async def _map_of(self, session: Session) -> ShardMap | Literal["away"] | None:
        try:
            # Limited, because shards of other servers may be added meanwhile.
            async with asyncio.timeout(LOOK_SECONDS):
                return await session.run(lambda client: client.admin.run(functions.get_shards(self._queue)))
        except (TimeoutError, SpanmqError):
            return "away"

    def _wanted(self, there: ShardMap) -> dict[str, str]:
        return {
            name: server for name, server in there.all.items() if self._chosen is None or name in self._chosen
        }

    async def _is_drained(self, shard: str, server: str) -> bool:
        try:
            return (await self._sessions[server].run(lambda client: client.queues.metrics(shard))).length == 0
        except QueueNotFoundError:
            return True
