"""What an idle worker asks while it polls as rarely as it does without tests: for a quarter of a minute."""

from __future__ import annotations

import pytest
from tests.worker.running import working
from tests.worker.test_idle import Queries

from spanmq import Client
from spanmq.worker import intake

LOOKS = 5


def test_idle_worker_asks_less_than_once_a_second(
    client: Client, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = Queries(monkeypatch)
    with working(database, print):
        # The first polls follow each other sooner, and maintenance finds out that nothing is to be done.
        queries.wait("maintain", 5)
        before = len(queries.all)
        queries.wait("receive", len(queries.of("receive")) + LOOKS)
        asked = [text for _, text in queries.all[before:]]
    # Maintenance and schedules have clocks of their own, so their share depends on the machine.
    others = ("pgmq.maintain(", "pgmq.upcoming_schedules(")
    polls = [text for text in asked if not any(other in text for other in others)]
    assert len(polls) <= LOOKS * intake.LOOK_SECONDS, polls
