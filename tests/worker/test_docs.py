"""docs/guides/worker.md and the page of events name every setting, event and option, and its programs are programs."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import get_args

import spanmq.worker
from spanmq.client.dsn import Timeouts
from spanmq.worker.breaker import BreakerPolicy
from spanmq.worker.event import Event
from spanmq.worker.setting import Settings

PAGE = (Path(__file__).parents[2] / "docs/guides/worker.md").read_text("utf-8")
EVENTS = (Path(__file__).parents[2] / "docs/reference/events.md").read_text("utf-8")
WORDS = set(re.findall(r"\w+", PAGE + EVENTS))


def test_every_setting_and_event_is_named() -> None:
    names = {field.name for kind in (Settings, BreakerPolicy, Timeouts) for field in fields(kind)}
    names |= {event.__name__ for event in get_args(Event)}
    names |= set(spanmq.worker.__all__) - {"load", "Settings"}
    assert names - WORDS == set()


def test_programs_run_up_to_the_database() -> None:
    scope: dict[str, object] = {}
    for number, program in enumerate(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)):
        text = program.replace(".run()", "")  # it would work for ever
        exec(compile(text, f"docs/guides/worker.md, program {number}", "exec"), scope)
    assert scope["counts"] == {}
