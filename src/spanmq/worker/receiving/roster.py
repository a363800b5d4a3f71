"""The shards that a worker receives from: it follows the shard map of their queue."""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final, Literal

from spanmq.client import functions
from spanmq.errors import InvalidArgumentError, QueueNotFoundError, SpanmqError
from spanmq.model.shard_map import ShardMap, newest
from spanmq.worker.inbox import Inbox
from spanmq.worker.incoming import QueueLeft, QueuesJoined
from spanmq.worker.receiving.poller import Poller
from spanmq.worker.session import Session

# How soon an added shard is received from; its groups wait for that.
LOOK_SECONDS: Final = 2.0


async def join(
    places: Mapping[str, str], pollers: Mapping[str, Poller], inbox: Inbox, *, is_later: bool = False
) -> None:
    """Poll for queues, of which `places` names the servers, and put those that are polled for.

    Raises QueueNotFoundError for one that does not exist.
    """
    for server in dict.fromkeys(places.values()):
        queues = [queue for queue, its_server in places.items() if its_server == server]
        await pollers[server].add(queues)
        inbox.put(QueuesJoined(server, queues, is_later))


class Roster:
    """Polls the newest map in all databases, and puts the shards that are new or left, of those that are `chosen`.

    A shard that has left the map is dropped when it is empty.
    """

    def __init__(
        self,
        queue: str,
        sessions: Mapping[str, Session],
        pollers: Mapping[str, Poller],
        chosen: Iterable[str] | None,
        inbox: Inbox,
    ) -> None:
        self._queue = queue
        self._sessions = sessions
        self._pollers = pollers
        self._chosen = None if chosen is None else frozenset(chosen)
        self._inbox = inbox
        self._known: dict[str, str] = {}

    async def begin(self) -> dict[str, str]:
        """Return the shards at the start; every server must answer, and every chosen shard must exist."""
        maps = [
            await session.run(lambda client: client.admin.run(functions.get_shards(self._queue)))
            for session in self._sessions.values()
        ]
        there = newest(maps)
        if there is None:
            raise QueueNotFoundError(
                f"{self._queue} has no shards", hint="ShardedQueue.create() creates them.", queue=self._queue
            )
        if unknown := (self._chosen or frozenset()) - there.all.keys():
            raise InvalidArgumentError(
                f"{self._queue} does not have the shards {', '.join(sorted(unknown))}", queue=self._queue
            )
        self._known = self._places_in(there)
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
                await self._follow(await self._look())

    async def _follow(self, places: dict[str, str]) -> None:
        """Leave shards, and join others; one that cannot be joined now is tried again."""
        for shard, server in [*self._known.items()]:
            if places.get(shard) != server:
                del self._known[shard]
                self._pollers[server].remove(shard)
                self._inbox.put(QueueLeft(shard))
        for shard, server in places.items():
            if shard not in self._known:
                await join({shard: server}, self._pollers, self._inbox, is_later=True)
                self._known[shard] = server

    async def _look(self) -> dict[str, str]:
        """Return the shards to receive from now, including shards that left the map and are not empty."""
        maps = await asyncio.gather(*[self._map_of(session) for session in self._sessions.values()])
        there = newest(shard_map for shard_map in maps if isinstance(shard_map, ShardMap))
        places = {} if there is None else self._places_in(there)
        # A server without a known address is for other workers.
        places = {name: server for name, server in places.items() if server in self._sessions}
        is_complete = "away" not in maps
        for name, server in self._known.items():
            # An unreachable server may have the newer map.
            if name not in places and not (is_complete and await self._is_drained(name, server)):
                places[name] = server
        return places

    async def _map_of(self, session: Session) -> ShardMap | Literal["away"] | None:
        try:
            # Limited, because shards of other servers may be added meanwhile.
            async with asyncio.timeout(LOOK_SECONDS):
                return await session.run(lambda client: client.admin.run(functions.get_shards(self._queue)))
        except (TimeoutError, SpanmqError):
            return "away"

    def _places_in(self, there: ShardMap) -> dict[str, str]:
        return {
            name: server for name, server in there.all.items() if self._chosen is None or name in self._chosen
        }

    async def _is_drained(self, shard: str, server: str) -> bool:
        try:
            return (await self._sessions[server].run(lambda client: client.queues.metrics(shard))).length == 0
        except QueueNotFoundError:
            return True
