"""The check of histories: it accepts a true one, and refuses each kind of a false one by its rule alone."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from lab.bench.history import Call, Recorder, kept, problems, read, seen
from lab.bench.history.calls import NEVER
from lab.bench.history.check import ORDERED_RULES, RULES
from msgspec.structs import replace

LEASE = 30.0
ATTEMPTS = 3


def call(verb: str, began: float, ended: float, got: Any, **arguments: Any) -> Call:
    """Return a call with times in seconds."""
    return Call(verb, round(began * 1e9), round(ended * 1e9), got=got, **arguments)


def true_history() -> list[Call]:
    """Return a history in which every rule has something to look at, by the names of its calls' places."""
    return [
        # 0: groups a, a, b, a; 1: without an answer, and it took effect: message 5.
        call("send", 1, 2, [1, 2, 3, 4], groups=["a", "a", "b", "a"]),
        replace(call("send", 1.5, 2, None, groups=["c"]), ended=NEVER),
        # 2: with 3, both heads; 3: a count beside it; 4, 5: settled, and a settlement by nobody.
        call("receive", 3, 4, [[1, 71], [3, 71]], seconds=LEASE),
        call("count", 3.5, 3.6, 5),
        call("settle", 5, 6, [1], ids=[1], lease=71),
        call("settle", 6, 7, [], ids=[2], lease=70),
        # 6: the next one of group a, while 3 is leased; 7: extended; 8: freed, and 9: delivered again.
        call("receive", 8, 9, [[2, 72]], seconds=LEASE),
        call("extend", 20, 21, [2], ids=[2], lease=72, seconds=LEASE),
        call("free", 45, 46, [2], ids=[2], lease=72),
        call("receive", 47, 48, [[2, 73]], seconds=LEASE),
        # 10, 11: the lease of 3 is over; it is rejected.
        call("receive", 50, 51, [[3, 74]], seconds=LEASE),
        call("settle", 52, 53, [3], ids=[3], lease=74, into="dead", error="no"),
        # 12, 13: the third delivery of 2, and then it is dead by its attempts.
        call("receive", 80, 81, [[2, 75]], seconds=1),
        call("receive", 90, 91, [[4, 76]], seconds=LEASE),
        # 14: may have settled 4, or not.
        replace(call("settle", 92, 93, None, ids=[4], lease=76), ended=NEVER),
        call("count", 94, 95, 2),
        call("look", 100, 101, {"left": [4, 5], "dead": [[3, "no"], [2, "lost"]]}),
    ]


def lose(calls: list[Call]) -> None:
    del calls[14]
    calls[-1].got["left"].remove(4)


def deliver_out_of_order(calls: list[Call]) -> None:
    # 4 waits for 2; a lease of no length, so that nothing is in flight when 2 comes again.
    calls.append(call("receive", 46.5, 46.9, [[4, 77]], seconds=0))


def deliver_beside(calls: list[Call]) -> None:
    # 6 is sent late, so 7 may be delivered before; but then 6 has to wait for it.
    calls += [
        call("send", 8, 12, [6], groups=["d"]),
        call("send", 8, 9, [7], groups=["d"]),
        call("receive", 10, 11, [[7, 77]], seconds=LEASE),
        call("receive", 13, 14, [[6, 78]], seconds=LEASE),
    ]
    calls[15].got = 4
    calls[16].got["left"] += [6, 7]


def of_a_pipeline() -> list[Call]:
    """Return a history of a stream whose driver is killed twice, of a worker beside it, and of an export."""
    return [
        call("send", 1, 2, [1, 2, 3, 4, 5, 6], groups=[None, None, None, None, "a", "a"]),
        call("receive", 3, 4, [[3, 70], [4, 70]], seconds=LEASE),
        # 2: a batch, and its driver is killed; 3: the next one has it again.
        call("claim", 5, 6, [[1, -7], [2, -7], [5, -7], [6, -7]]),
        call("claim", 8, 9, [[1, -7], [2, -7], [5, -7], [6, -7]]),
        # 4: killed, and it may have settled the batch; 5: the next one says so again, and a third one.
        replace(call("confirm", 10, 11, None, lease=-7), ended=NEVER),
        call("confirm", 12, 13, None, lease=-7),
        call("confirm", 14, 15, None, lease=-7),
        # 7, 8: two are archived; 9: a lake has them.
        call("settle", 20, 21, [3], ids=[3], into="archived"),
        call("settle", 22, 23, [4], ids=[4], into="archived"),
        call("export", 30, 31, None, ids=[3, 4]),
        # Retention has deleted one.
        call("look", 100, 101, {"left": [], "dead": [], "archived": [4], "exported": [3, 4]}),
    ]


def deliver_to_two(calls: list[Call]) -> None:
    calls.append(call("receive", 9.2, 9.4, [[1, 71]], seconds=LEASE))


def deliver_group_to_two(calls: list[Call]) -> None:
    """Deliver the next one of a group to a worker while the stream has the first."""
    calls[2].got, calls[3].got = calls[2].got[:3], calls[3].got[:3]
    calls.append(call("receive", 9.2, 9.4, [[6, 71]], seconds=0))
    calls.append(call("settle", 9.5, 9.6, [6], ids=[6], lease=71))


def not_confirmed(calls: list[Call]) -> None:
    del calls[4:7]


def note_what_was_not_archived(calls: list[Call]) -> None:
    calls[9].ids.append(2)
    calls[10].got["exported"].append(2)


def note_early(calls: list[Call]) -> None:
    calls[9].began, calls[9].ended = 15_000_000_000, 16_000_000_000


# Two leases of a message, and it is settled by the older one.
TWO_LEASES = {"leased twice at a time", "settled by an old lease"}
# The same, in which a stream or an export has to do with it.
FALSE_PIPELINES: dict[str, tuple[set[str], Callable[[list[Call]], Any]]] = {
    "a stream's message goes to a worker": (TWO_LEASES, deliver_to_two),
    "a stream's group goes on elsewhere": ({"in flight together", "out of order"}, deliver_group_to_two),
    "another stream has it too": (
        TWO_LEASES,
        lambda calls: calls.append(call("claim", 9.2, 9.4, [[1, -8]])),
    ),
    "a batch comes again after it was confirmed": (
        {"delivered after it was settled"},
        lambda calls: calls.append(call("claim", 40, 41, [[1, -7]])),
    ),
    "a batch is never confirmed": ({"lost"}, not_confirmed),
    "a confirmed message is left": ({"not kept"}, lambda calls: calls[10].got["left"].append(1)),
    "a worker settles it too": (
        {"settled twice"},
        lambda calls: calls.append(call("settle", 11, 12, [2], ids=[2], lease=71)),
    ),
    "retention deletes what no lake has": ({"not kept"}, lambda calls: calls[9].ids.remove(3)),
    "a lake lacks what the database was told": (
        {"not exported"},
        lambda calls: calls[10].got["exported"].remove(3),
    ),
    "a lake has a row twice": ({"exported twice"}, lambda calls: calls[10].got["exported"].append(4)),
    "a lake has what was never archived": ({"exported before it was archived"}, note_what_was_not_archived),
    "an export is noted before the archive has it": (
        {"exported before it was archived"},
        note_early,
    ),
}
# What makes a history false, by the rule that must find it.
FALSE: dict[str, Callable[[list[Call]], Any]] = {
    "invented": lambda calls: calls[16].got["left"].append(9),
    "lost": lose,
    "not kept": lambda calls: calls[16].got["left"].append(1),
    "settled twice": lambda calls: calls[5].got.append(1),
    "delivered after it was settled": lambda calls: calls[9].got.append([1, 73]),
    # It is delivered again, and nothing has ended its lease.
    "leased twice at a time": lambda calls: calls[8].got.clear(),
    "settled by an old lease": lambda calls: setattr(calls[11], "lease", 71),
    "dead without a cause": lambda calls: setattr(calls[11], "error", "yes"),
    "miscounted": lambda calls: setattr(calls[3], "got", 6),
    "out of order": deliver_out_of_order,
    "in flight together": deliver_beside,
}


def rules_broken(calls: list[Call]) -> set[str]:
    calls.sort(key=lambda each: each.began)
    found = problems(calls, ordered=True, max_attempts=ATTEMPTS)
    return {each.partition(":")[0] for each in found}


def test_true_history_breaks_no_rule() -> None:
    assert rules_broken(true_history()) == set()


def test_true_history_of_a_pipeline_breaks_no_rule() -> None:
    assert rules_broken(of_a_pipeline()) == set()
    # What a lake has without a note of it: its export was killed between the two.
    assert rules_broken([each for each in of_a_pipeline() if each.verb != "export"]) == {"not kept"}


@pytest.mark.parametrize("name", FALSE_PIPELINES)
def test_false_history_of_a_pipeline_is_refused(name: str) -> None:
    calls = of_a_pipeline()
    rules, change = FALSE_PIPELINES[name]
    change(calls)
    assert rules_broken(calls) == rules


def test_each_rule_has_a_false_history() -> None:
    of_pipelines = set().union(*(rules for rules, _ in FALSE_PIPELINES.values()))
    assert {*RULES, *ORDERED_RULES} == FALSE.keys() | of_pipelines


@pytest.mark.parametrize("rule", FALSE)
def test_false_history_is_refused_by_one_rule(rule: str) -> None:
    calls = true_history()
    FALSE[rule](calls)
    assert rules_broken(calls) == {rule}


def deliver_early(calls: list[Call]) -> None:
    calls[9].began, calls[9].ended = 38_100_000_000, 38_200_000_000


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda calls: calls[1].groups.clear(), id="no call may have sent it"),
        pytest.param(lambda calls: calls[12].got.clear(), id="one delivery less than it takes to die"),
        pytest.param(deliver_early, id="delivered while it was extended"),
        pytest.param(lambda calls: calls[16].got["dead"].pop(0), id="a dead letter that is not there"),
        pytest.param(lambda calls: setattr(calls[3], "got", 3), id="counts less than there is"),
    ],
)
def test_other_false_history_is_refused(change: Callable[[list[Call]], Any]) -> None:
    calls = true_history()
    change(calls)
    assert rules_broken(calls)


def test_message_that_is_taken_is_delivered_and_settled_at_once() -> None:
    calls = [
        call("send", 1, 2, [1, 2], groups=[None, None]),
        call("take", 3, 5, [1]),
        call("look", 20, 21, {"left": [2], "dead": []}),
    ]
    assert not rules_broken([*calls])
    receive = call("receive", 4, 6, [[1, 71]], seconds=LEASE)
    assert rules_broken([*calls, receive]) == {"leased twice at a time"}
    assert rules_broken([*calls, call("take", 6, 7, [1])]) >= {
        "settled twice",
        "delivered after it was settled",
    }
    # Of a call without an answer it is not known what it took.
    sent, took, look = calls
    assert rules_broken([sent, look]) == {"lost"}
    assert not rules_broken([sent, replace(took, ended=NEVER, got=None), look])


def test_calls_that_overlap_may_have_happened_in_either_order() -> None:
    assert not rules_broken(
        [
            call("send", 1, 2, [1, 2], groups=["a", "a"]),
            call("receive", 1, 3, [[1, 71]], seconds=LEASE),
            # Ended before the free did, but it may have come after it; so may the second free.
            call("free", 4, 9, [1], ids=[1], lease=71),
            call("receive", 5, 6, [[1, 72]], seconds=LEASE),
            call("settle", 7, 12, [1], ids=[1], lease=72),
            call("receive", 8, 10, [[2, 73]], seconds=LEASE),
            call("count", 8, 9, 1),
            call("count", 8.5, 9, 2),
            call("look", 20, 21, {"left": [2], "dead": []}),
        ]
    )


def test_history_that_a_promotion_cut_has_what_the_standby_had_and_nothing_else() -> None:
    calls = [
        call("send", 1, 2, [1], groups=[None], wal=100, wal_after=200),
        call("send", 3, 4, [2], groups=[None], wal=200, wal_after=300),
        call("receive", 5, 6, [[1, 71]], seconds=LEASE, wal=300, wal_after=400),
        call("settle", 7, 8, [1], ids=[1], lease=71, wal=400, wal_after=500),
    ]
    for position, left in ((500, [2]), (400, [1, 2]), (300, [1, 2]), (200, [1]), (100, [])):
        look = call("look", 9, 10, {"left": left, "dead": []})
        assert problems([*kept(calls, position), look]) == [], position
        for wrong in ([1], [2], [1, 2], []):
            if wrong != left:
                look = call("look", 9, 10, {"left": wrong, "dead": []})
                assert problems([*kept(calls, position), look]), (position, wrong)
    # In the middle of a call nobody knows.
    for left in ([1, 2], [1]):
        assert problems([*kept(calls, 250), call("look", 9, 10, {"left": left, "dead": []})]) == []


def test_history_in_a_snapshot_has_what_ended_before_it_and_perhaps_what_was_under_way() -> None:
    calls = [
        call("send", 1, 2, [1], groups=[None]),
        call("send", 3, 5, [2], groups=[None]),
        call("send", 7, 8, [3], groups=[None]),
    ]
    for left, is_true in (([1], True), ([1, 2], True), ([2], False), ([1, 2, 3], False)):
        look = call("look", 9, 10, {"left": left, "dead": []})
        found = problems([*seen(calls, 4_000_000_000, 6_000_000_000), look])
        assert bool(found) != is_true, (left, found)


def test_recorded_calls_are_read_as_they_were(tmp_path: Path) -> None:
    with Recorder(tmp_path, "one") as recorder, Recorder(tmp_path, "two") as other:
        with recorder.call("send", groups=["a", None]) as sending:
            open_call = other.call("settle", ids=[1], lease=7, into="dead", error="no")
            sending.got = [1, 2]
        with pytest.raises(psycopg.OperationalError), recorder.call("receive", seconds=30):
            raise psycopg.OperationalError("the connection is lost")
        with pytest.raises(psycopg.errors.AdminShutdown), recorder.call("receive", seconds=31):
            raise psycopg.errors.AdminShutdown
        with pytest.raises(psycopg.errors.DeadlockDetected), recorder.call("receive", seconds=32):
            raise psycopg.errors.DeadlockDetected
        open_call.got = [1]
        open_call.end()
    # The same client once more.
    with Recorder(tmp_path, "one") as again, again.call("count") as counting:
        counting.got = 5
    with (tmp_path / "two.jsonl").open("a") as file:
        file.write(json.dumps({"number": 2, "verb": "a kill cut this"})[:-5])
    send, settle, lost, ended, count = read(tmp_path)
    assert (count.verb, count.got) == ("count", 5)
    assert (send.verb, send.groups, send.got) == ("send", ["a", None], [1, 2])
    assert (settle.ids, settle.lease, settle.into, settle.error, settle.got) == ([1], 7, "dead", "no", [1])
    assert send.began < settle.began < send.ended < lost.began < ended.began < settle.ended
    assert [(each.seconds, each.is_answered) for each in (lost, ended)] == [(30, False), (31, False)]
