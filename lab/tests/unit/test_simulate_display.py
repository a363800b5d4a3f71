"""What is seen while it runs."""

import pytest
from lab.tests.unit.simulate_records import Log

from spanmq_lab.simulate import display
from spanmq_lab.simulate.audit import Audit
from spanmq_lab.simulate.display import Display, Speed


def test_lines_tell_how_it_goes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(display, "LINE_SECONDS", 0.0)
    log = Log(workers=4)
    audit = Audit(log.options)
    shown = Display(log.options)
    for message in range(1, 5):
        log.send(message, message)
    for record in log.records:
        audit.add(record)
    shown.show("writing", audit, 1.0)
    assert capsys.readouterr().err == "1 s: 4 messages written (0/s)\n"
    done = len(log.records)
    log.handle(1, 2)
    log.start(3, worker=1)
    log.write("worker", worker=0, polls=9, idle_polls=7)
    for record in log.records[done:]:
        audit.add(record)
    shown.show("handling", audit, 2.0)
    assert capsys.readouterr().err == ("2 s: 2 handled (0/s), 2 waiting, 1 of 4 workers busy, 7 idle polls\n")


def test_lines_come_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    log = Log()
    shown = Display(log.options)
    for tenth in range(10):
        shown.show("handling", Audit(log.options), tenth / 10)
    assert capsys.readouterr().err == ""


def test_rate_is_that_of_the_last_seconds() -> None:
    speed = Speed()
    rates = [speed.note(now, count) for now, count in ((0.0, 0), (1.0, 100), (2.0, 300), (4.5, 300))]
    assert rates[:3] == [0.0, 100.0, 150.0]
    assert rates[3] < 150.0
    assert len(speed.drawn()) == 4
