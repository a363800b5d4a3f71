"""docs/guides/worker.md and the page of events name every setting, event and option, and its programs are programs."""

import re
from dataclasses import fields
from typing import get_args

from tests.documented import DOCS, run_programs

import spanmq.worker
from spanmq.client.dsn import Timeouts
from spanmq.worker.breaker import BreakerPolicy
from spanmq.worker.event import Event
from spanmq.worker.setting import Settings

PAGES = [(DOCS / f"{page}.md").read_text("utf-8") for page in ("guides/worker", "reference/events")]
WORDS = set(re.findall(r"\w+", "".join(PAGES)))


def test_every_setting_and_event_is_named() -> None:
    names = {field.name for kind in (Settings, BreakerPolicy, Timeouts) for field in fields(kind)}
    names |= {event.__name__ for event in get_args(Event)}
    names |= set(spanmq.worker.__all__) - {"load", "Settings", "WorkerOptions", "WorkerSettings"}
    assert names - WORDS == set()


def test_programs_run_up_to_the_database() -> None:
    # It would work for ever.
    scope = run_programs("guides/worker", change=lambda program: program.replace(".run()", ""))
    assert scope["counts"] == {}
