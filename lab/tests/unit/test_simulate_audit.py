"""The audit can fail: logs that were doctored in each way, and those that look odd but are right."""

from pathlib import Path

import pytest
from lab.tests.unit.simulate_records import LEASE, Log
from tests.cli.program import spanmq

from spanmq_lab.simulate.audit import Audit

LOST, DUPLICATED, ORDER = "nothing lost", "nothing duplicated", "order kept in each key"
UNKNOWN, CAUSE = "nothing handled that was not sent", "no dead letter without cause"
STILL, COMPLETE = "every key made progress", "the log is complete"


def filled(count: int = 4, **options: object) -> Log:
    log = Log(**options)
    for message in range(1, count + 1):
        log.send(message, message)
    log.write("workers_started")
    return log


def of_four(*handled: int) -> Log:
    log = filled()
    log.handle(*handled)
    return log


def begun_only() -> Log:
    log = filled(1)
    log.start(1)
    return log


def sending_only() -> Log:
    log = filled(1)
    log.write("sending", producer=0, id=2, type="type1", key="1", number=2)
    log.handle(1)
    return log


def done_twice() -> Log:
    log = of_four(1, 2)
    log.done(2)
    log.handle(3, 4)
    return log


def unsent() -> Log:
    log = filled(1)
    log.handle(1, 7)
    return log


def sent_unannounced() -> Log:
    log = filled(1)
    log.write("sent", producer=0, ids=[2])
    log.handle(1)
    return log


def sent_before_its_sending() -> Log:
    log = Log()
    log.send(1, 1)
    log.records[1:] = reversed(log.records[1:])
    log.write("workers_started")
    log.handle(1)
    return log


def foreign() -> Log:
    log = of_four(1, 2, 3, 4)
    log.write("foreign", worker=0, queue="type1", message_id=9)
    log.write("foreign", worker=1, queue="type1", message_id=9)
    log.write("foreign", worker=0, queue="type1", message_id=None)
    return log


def overlapping() -> Log:
    log = filled(2)
    log.start(1)
    log.start(2, worker=1)
    log.done(1)
    log.done(2, worker=1)
    return log


def overtaken() -> Log:
    log = filled(2)
    log.start(1)
    log.write("failed", worker=0, id=1, category="TRANSIENT")
    log.handle(2)
    log.handle(1, taken_at=101.0)
    return log


def several_keys() -> Log:
    log = Log()
    log.send(1, 1, key="1")
    log.send(2, 1, key="2")
    log.send(3, 1, key="1", producer=1)
    log.send(4, 2, key="1")
    log.write("workers_started")
    log.handle(3, 2, 1, 4)
    return log


def retried() -> Log:
    log = filled(2)
    log.start(1)
    log.write("failed", worker=0, id=1, category="TRANSIENT")
    log.write("settled", worker=0, outcome="retrying", ids=[1])
    log.handle(1, 2, taken_at=100.5)
    return log


def followed_before_the_dead_one_is_written() -> Log:
    log = filled(2, max_attempts=1)
    log.start(1)
    log.write("failed", worker=0, id=1, category="TRANSIENT")
    log.start(2, worker=1)
    log.write("settled", worker=0, outcome="dead", ids=[1])
    log.done(2, worker=1)
    return log


@pytest.mark.parametrize(
    ("log", "failed"),
    [
        (of_four(1, 2, 3, 4), {}),
        (of_four(2, 3, 4), {LOST: ("1",)}),
        (of_four(1, 3, 4), {LOST: ("2",)}),
        (of_four(1, 2, 3), {LOST: ("4",)}),
        (begun_only(), {LOST: ("1",)}),
        (sending_only(), {}),
        (done_twice(), {DUPLICATED: ("2",)}),
        (unsent(), {UNKNOWN: ("7", "7")}),
        (sent_unannounced(), {"nothing sent before its sending was recorded": ("2",)}),
        (sent_before_its_sending(), {"nothing sent before its sending was recorded": ("1",)}),
        (foreign(), {"no message of another sender": ("type1/9", "type1/unreadable")}),
        (of_four(1, 3, 2, 4), {ORDER: ("3 before 2",)}),
        (overlapping(), {ORDER: ("2 before 1",)}),
        (overtaken(), {ORDER: ("2 before 1",)}),
        (several_keys(), {}),
        (retried(), {}),
        (followed_before_the_dead_one_is_written(), {}),
    ],
)
def test_log_of_a_whole_run_is_judged(log: Log, failed: dict[str, tuple[str, ...]]) -> None:
    log.stop()
    found = {name: check.ids for name, check in log.failed().items()}
    assert {name: found.get(name) for name in failed} == failed
    assert bool(found) == bool(failed)


def test_stopped_run_leaves_messages_but_loses_none() -> None:
    log = filled()
    log.handle(1, 2)
    log.stop("time")
    assert log.failed(left=2) == {}
    assert log.failed(left=3) == {}  # one was done, but its worker was killed before it was settled
    assert set(log.failed(left=1)) == {LOST}
    assert log.failed() == {}


def test_log_alone_shows_what_was_passed_over() -> None:
    log = filled()
    log.handle(1, 3)
    log.stop("time")
    assert log.failed()[LOST].ids == ("2",)


@pytest.mark.parametrize(("later", "is_right"), [(0.0, False), (LEASE - 0.001, False), (LEASE, True)])
def test_second_delivery_is_right_when_the_lease_ran_out(later: float, is_right: bool) -> None:
    log = filled(2)
    log.handle(1, taken_at=100.0)
    log.handle(1, 2, worker=1, taken_at=100.0 + later)
    log.stop()
    assert set(log.failed()) == (set() if is_right else {DUPLICATED})


@pytest.mark.parametrize(
    ("engine", "is_killed", "is_right"),
    [("spanmq", True, False), ("polling", True, True), ("polling", False, False)],
)
def test_death_of_a_worker_is_the_cause_where_there_are_no_leases(
    engine: str, is_killed: bool, is_right: bool
) -> None:
    log = filled(1, engine=engine)
    times = (100.0, 101.0) if engine == "spanmq" else (None, None)
    log.start(1, taken_at=times[0])
    if is_killed:
        log.write("worker_killed", worker=0)
    log.handle(1, worker=1, taken_at=times[1])
    log.stop()
    assert set(log.failed()) == (set() if is_right else {DUPLICATED})


def test_message_that_was_dead_and_is_handled_then_counts_as_handled() -> None:
    log = filled(2)
    log.start(1)
    log.write("settled", worker=0, outcome="dead", ids=[1])
    log.done(1)
    audit = Audit(log.options)
    for record in log.records:
        audit.add(record)
    assert (audit.handled, audit.dead, audit.waiting) == (1, 0, 1)


@pytest.mark.parametrize(
    ("failures", "category", "more", "is_right"),
    [
        (2, "TRANSIENT", {}, False),
        (3, "TRANSIENT", {}, True),
        (1, "PERMANENT", {}, True),
        (0, "PERMANENT", {}, False),
        (0, "TRANSIENT", {"poison": True}, True),
        # Attempts are counted by the engine.
        (1, "TRANSIENT", {"attempt": 2}, False),
        (1, "TRANSIENT", {"attempt": 3}, True),
        # What a killed worker had received lost an attempt.
        (1, "TRANSIENT", {"attempt": 2, "deaths": 1}, True),
    ],
)
def test_message_given_up_too_early_is_found(
    failures: int, category: str, more: dict[str, int], is_right: bool
) -> None:
    log = Log(max_attempts=3, failure_category=category)
    log.send(1, 1, poison="poison" in more)
    log.write("workers_started")
    for _ in range(failures):
        log.start(1)["attempt"] = more.get("attempt", 1)
        log.write("failed", worker=0, id=1, category=category)
    for _ in range(more.get("deaths", 0)):
        log.write("worker_killed", worker=1)
    log.write("settled", worker=0, outcome="dead", ids=[1])
    log.stop()
    assert set(log.failed()) == (set() if is_right else {CAUSE})


def test_number_used_twice_is_found() -> None:
    log = filled(1)
    log.send(1, 2)
    log.handle(1)
    log.stop()
    assert set(log.failed()) == {"no number sent twice"}


def test_log_of_which_lines_are_missing_is_found() -> None:
    log = filled(2)
    log.handle(1, 2)
    log.stop()
    whole = log.records
    for records, found in (
        (whole[:-1], "10 lines"),  # the last line
        (whole[:7], "7 lines"),  # the tail
        (whole[:5] + whole[6:], "10 of 11 lines"),
        ([*whole, whole[-2]], "12 lines"),
        ([*whole[:-2], whole[-1], whole[-2]], "11 lines"),  # the last two, swapped
    ):
        log.records = records
        assert log.failed()[COMPLETE].ids == (found,)


def test_report_of_a_log_has_the_rate_and_the_kills_and_the_picture_shows_them(tmp_path: Path) -> None:
    log = filled(2, rate=100.0)
    for producer in range(2):
        log.write("producer_ended", producer=producer, count=30, seconds=2.0, cpu_seconds=0.1)
    log.write("worker_killed", worker=0)
    log.write("worker_restarted", worker=0)
    log.handle(1, 2)
    log.stop()
    path, picture = str(log.save(tmp_path / "a.log")), tmp_path / "a.svg"
    assert "100.0 asked, 30.0 reached" in spanmq("simulate", "--audit", path, dsn=None).out
    done = spanmq("simulate", "--audit", path, "--plot", str(picture), "--json", dsn=None)
    [report] = done.records
    assert (report["rate_asked"], report["rate_reached"]) == (100.0, 30.0)
    assert (report["killed"], report["restarted"], report["kills"]) == (1, 1, [pytest.approx(0.03)])
    assert all(f"<!-- {label} -->" in picture.read_text() for label in ("asked", "worker killed"))


def test_torn_line_is_found() -> None:
    log = filled(1)
    log.handle(1)
    log.stop()
    assert set(log.failed(torn=1)) == {"every line of the log is a record"}


@pytest.mark.parametrize("is_idle", [True, False])
def test_key_at_which_nobody_works_is_found_when_workers_idle(is_idle: bool) -> None:
    log = filled(2, engine="polling", workers=1, types=1)
    log.handle(1, taken_at=None)
    for second in range(5):
        idle_polls = second if is_idle else 0
        log.write("worker", worker=0, polls=second, idle_polls=idle_polls)["at"] = 1.0 + second
    log.stop("time")
    log.records[-1]["at"] = 6.0
    failed = log.failed(left=1)
    assert set(failed) == ({STILL} if is_idle else set())
    if is_idle:
        assert failed[STILL].ids == ("type1/1",)


def test_program_audits_a_log(tmp_path: Path) -> None:
    log = filled()
    log.handle(1, 2, 3, 4)
    log.stop()
    assert spanmq("simulate", "--audit", str(log.save(tmp_path / "right.log")), dsn=None).code == 0
    del log.records[-2]
    log.records[-1]["lines"] -= 1
    done = spanmq("simulate", "--audit", str(log.save(tmp_path / "lost.log")), "--json", dsn=None)
    assert done.code == 1
    [report] = done.records
    assert [each["ids"] for each in report["checks"] if not each["passed"]] == [["4"]]
    path = tmp_path / "torn.log"
    path.write_bytes(log.save(path).read_bytes()[:-3])
    assert "NO: 1 lines" in spanmq("simulate", "--audit", str(path), dsn=None).out
    for text, said in ((b"", "is not the log of a run"), (b"{}\n", "is not the log of a run")):
        path.write_bytes(text)
        assert said in spanmq("simulate", "--audit", str(path), dsn=None).err
    assert "cannot be read" in spanmq("simulate", "--audit", str(tmp_path / "none.log"), dsn=None).err
