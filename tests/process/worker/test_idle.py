"""What an idle worker asks while it polls as rarely as it does without tests: for a quarter of a minute."""

import pytest
from tests.schemas import qualified
from tests.worker.running import working
from tests.worker.test_idle import Queries

from spanmq import Client
from spanmq.client.polling import HEARD_SECONDS

LOOKS = 5
# These have clocks of their own, which run on when a slow machine takes longer to poll.
CLOCKS = ("maintain", "upcoming_schedules", "await_messages", "report_worker")
# By which the connection that listens asks whether its server is still there.
HEARTBEAT = "select"


def test_idle_worker_asks_less_than_once_a_second(
    client: Client, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = Queries(monkeypatch, database)
    with working(database, print):
        # The first polls follow each other sooner, and maintenance finds out that nothing is to be done.
        queries.wait("maintain", 5)
        before = len(queries.all)
        queries.wait("poll", len(queries.of("poll")) + LOOKS)
        asked = queries.since(before)
    by_clocks = [text for text in asked if any(f"{qualified(clock)}(" in text for clock in CLOCKS)]
    polls = [text for text in asked if text not in by_clocks and text != HEARTBEAT]
    assert all("spanmq.poll(" in text for text in polls), polls
    assert HEARD_SECONDS > 2
