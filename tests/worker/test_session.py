"""The connection of a worker through outages, with a clock that stands still between attempts to connect."""

import asyncio
from dataclasses import dataclass, field

import pytest

from spanmq import AsyncClient
from spanmq.client.dsn import UNLIMITED
from spanmq.client.outage import Outage
from spanmq.errors import ConnectionFailedError
from spanmq.worker.event import ConnectionBroken, ConnectionRestored, Event, EventBus
from spanmq.worker.inbox import Inbox
from spanmq.worker.session import Session

DSN = "host=/no/such/folder"


@dataclass(eq=False)
class Server:
    """A server that is away for some attempts of 10 s each, and the longest pauses before them."""

    away: int = 0
    now: float = 0.0
    longest: list[float] = field(default_factory=list)

    def draw(self, _: float, longest: float) -> float:
        self.longest.append(round(longest, 2))
        return 1e-6

    async def connect(self) -> AsyncClient:
        if self.away:
            self.away -= 1
            self.now += 10
            raise ConnectionFailedError("refused")
        return AsyncClient(DSN)


def test_session_pauses_by_the_length_of_the_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(_pauses(monkeypatch))


async def _pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    monkeypatch.setattr("spanmq.worker.session.Outage", lambda: Outage(lambda: server.now, server.draw))
    monkeypatch.setattr(Session, "_connect", lambda _: server.connect())
    events: list[Event] = []
    session = Session(
        dsn=DSN,
        timeouts=UNLIMITED,
        decoder=bytes,
        pool_size=1,
        threads=0,
        pooler=False,
        password=None,
        bus=EventBus([events.append]),
        inbox=Inbox(lambda: server.now),
    )
    await session.start()

    async def lose(away: int) -> list[float]:
        server.away = away
        server.longest.clear()
        session.broken(await session.client(), ConnectionFailedError("gone"))
        await session.client()
        return server.longest

    assert await lose(0) == []
    # What breaks soon after it was made belongs to the outage before.
    assert await lose(0) == [0.5]
    server.now += 100
    assert await lose(7) == [1.0, 2.0, 3.0, 4.0, 5.0, 5.0, 5.0]
    assert await lose(0) == [5.0]
    await asyncio.sleep(0)  # until the last one is told of
    restored = [event.attempts for event in events if isinstance(event, ConnectionRestored)]
    assert restored == [1, 1, 8, 1]
    assert len([event for event in events if isinstance(event, ConnectionBroken)]) == 9
    await session.stop()
