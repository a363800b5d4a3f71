"""What a worker decides, and when: without a database, with a clock that stands still."""

import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest

from spanmq import Message
from spanmq.errors import DecryptionError, MissingPrivilegeError
from spanmq.worker.breaker import BreakerPolicy
from spanmq.worker.effect import (
    Abandon,
    BeginAlone,
    Cancel,
    Crash,
    Effect,
    Extend,
    FindCancelled,
    Finish,
    Later,
    PassOn,
    Poll,
    Receive,
    Report,
    SetRoom,
    Settle,
)
from spanmq.worker.event import (
    BreakerClosed,
    BreakerOpened,
    BreakerTried,
    CallFailed,
    EventBus,
    HandlerOverran,
    HandlerSlow,
    LeaseExtended,
    LeaseLost,
    MessageHandled,
    ShardJoined,
    ShardLeft,
)
from spanmq.worker.failure import HandlerFailure
from spanmq.worker.handler import look_at
from spanmq.worker.inbox import PartFailed
from spanmq.worker.incoming import (
    AloneBegun,
    BreakerCloseAsked,
    CancelAsked,
    CancelsFound,
    CommandAsked,
    ExtensionEnded,
    GraceEnded,
    HandlerEnded,
    HandlersLooked,
    PolicySeen,
    QueueEmpty,
    QueueLeft,
    QueueReady,
    QueuesJoined,
    Received,
    ReceiveFailed,
    ReceivesEnded,
    SettlementEnded,
    Started,
    StopAsked,
    Stopping,
)
from spanmq.worker.job import Gone, Job, Released, Slot, Verdict, running
from spanmq.worker.machine import Machine
from spanmq.worker.setting import Settings

Kind = TypeVar("Kind")

# Of a call of one message, which fails because a dependency is down.
DOWN = HandlerFailure("nack", "down", "DEPENDENCY")


class Places:
    """Slots in which a job runs when a test has it begin."""

    def __init__(self) -> None:
        self.waiting: list[Job] = []
        self._slots: list[Slot] = []

    def add(self, job: Job) -> None:
        self.waiting.append(job)

    def take_back(self) -> list[Job]:
        taken, self.waiting = self.waiting, []
        return taken

    def running(self) -> Iterator[tuple[Slot, Job, float]]:
        return running(self._slots)

    def begin(self, now: float) -> Job:
        slot = Slot()
        self._slots.append(slot)
        assert slot.begin(self.waiting.pop(0), now)
        assert slot.job is not None
        return slot.job

    def end(self, job: Job) -> Job:
        self._slots = [slot for slot in self._slots if slot.job is not job]
        return job


class Play:
    """A machine, the time that it is told, and the effects of its last turn."""

    def __init__(self, *queues: str, handler: Any = None, observers: Any = (), **settings: Any) -> None:
        async def handle(message: Message) -> None: ...

        self.now = 1_000.0
        self.places = Places()
        self.settings = Settings(**settings)
        handler = look_at(handler or handle, takes_batches=self.settings.in_batches)
        self.machine = Machine(self.settings, handler, self.places, ["here"], EventBus(observers))
        self.effects: list[Effect] = []
        self.put(QueuesJoined("here", queues or ("orders",)), Started())

    def put(self, *events: object) -> list[Effect]:
        self.machine.take(events, self.now)
        self.effects = self.machine.turn(self.now)
        return self.effects

    def later(self, seconds: float, *events: object) -> list[Effect]:
        self.now += seconds
        return self.put(*events)

    def of(self, kind: type[Kind]) -> list[Kind]:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def receive(self, *bodies: Any, queue: str = "orders", **fields: Any) -> list[Job]:
        """Have a queue received from, which returns these bodies; return the jobs that wait for a slot."""
        self.put(QueueReady(queue, is_woken=True))
        [asked] = [each for each in self.of(Receive) if each.queue == queue]
        self.put(Received(asked, messages(queue, *bodies, **fields), self.now))
        return self.places.waiting

    def begin(self, count: int = 1) -> list[Job]:
        return [self.places.begin(self.now) for _ in range(count)]

    def end(self, *jobs: Job, verdict: Verdict = None) -> list[Effect]:
        return self.put(*[HandlerEnded(self.places.end(job), verdict) for job in jobs])

    def settled(self, *calls: Settle) -> list[Effect]:
        """Say that calls have ended."""
        return self.put(
            *[
                SettlementEnded("here", call.lease, sum(len(job.messages) for job in call.jobs), False)
                for call in calls
            ]
        )


NUMBERS = iter(range(1, 1_000_000))


def messages(
    queue: str, *bodies: Any, slot: int = 1, lease: float = 30.0, attempt: int = 1, group: str | None = None
) -> list[Message]:
    begun_at = datetime(2026, 1, 1, tzinfo=UTC)
    until, lease_id = begun_at + timedelta(seconds=lease), next(NUMBERS)
    return [
        Message(
            queue=queue,
            message_id=next(NUMBERS),
            body=body,
            headers=None,
            attempt=attempt,
            enqueued_at=begun_at,
            leased_until=until,
            last_read_at=begun_at,
            lease_id=lease_id,
            slot=slot,
            group=group,
        )
        for body in bodies
    ]


def ids(calls: list[Settle]) -> list[Any]:
    return [message.body for call in calls for job in call.jobs for message in job.messages]


# Receives.


def test_a_queue_is_received_from_when_it_may_have_a_message_and_once_at_a_time() -> None:
    play = Play(concurrency=3)
    assert play.of(Receive) == []
    play.put(QueueReady("orders", is_woken=False))
    assert play.of(Receive) == [Receive("orders", 3, 2)]
    assert play.put(QueueReady("orders", is_woken=True)) == []


def test_an_empty_queue_is_not_asked_again_until_a_pause_is_over_unless_a_send_wakes_it() -> None:
    play = Play()
    play.put(QueueReady("orders", is_woken=False))
    play.put(Received(play.of(Receive)[0], [], play.now))
    assert play.put(QueueReady("orders", is_woken=False)) == []
    play.later(0.02, QueueReady("orders", is_woken=False))
    assert play.of(Receive) == [Receive("orders", 10, 5)]
    play.put(Received(play.of(Receive)[0], [], play.now))
    play.put(QueueReady("orders", is_woken=True))
    assert play.of(Receive) == [Receive("orders", 10, 5)]
    # Somebody else had the message: the poll under way may have seen it.
    play.put(Received(play.of(Receive)[0], [], play.now))
    assert play.of(Poll) == [Poll("here", received="orders")]


def test_a_receive_that_failed_is_repeated_after_a_pause() -> None:
    play = Play()
    play.put(QueueReady("orders", is_woken=False))
    play.put(ReceiveFailed(play.of(Receive)[0], MissingPrivilegeError("no")))
    [failed], [later] = play.of(CallFailed), play.of(Later)
    assert failed.retry_in is not None
    assert 0 < later.at - play.now == pytest.approx(failed.retry_in)
    assert play.put(QueueReady("orders", is_woken=False)) == []
    play.now = later.at
    assert len([each for each in play.put(later.event) if isinstance(each, Receive)]) == 1


def test_bodies_that_cannot_be_opened_hold_up_the_next_receive_for_half_a_second_at_most() -> None:
    play = Play()
    pauses = []
    for _ in range(20):
        play.put(QueueReady("orders", is_woken=True))
        play.put(ReceiveFailed(play.of(Receive)[0], DecryptionError("no key")))
        pauses += [failed.retry_in or 0.0 for failed in play.of(CallFailed)]
        play.later(10)
    assert len(pauses) == 20
    assert max(pauses) == 0.5


def test_a_lost_connection_is_no_error_of_the_queue() -> None:
    play = Play()
    play.put(QueueReady("orders", is_woken=False))
    play.put(ReceiveFailed(play.of(Receive)[0], None))
    assert play.of(Later) == [Later(play.now, QueueReady("orders", is_woken=False))]
    assert play.of(CallFailed) == []


def test_a_woken_process_without_a_free_slot_passes_messages_on() -> None:
    play = Play(concurrency=1)
    play.put(QueueReady("orders", is_woken=True))
    assert play.of(SetRoom) == [SetRoom("here", has_room=False)]
    play.put(Received(play.of(Receive)[0], messages("orders", 1), play.now))
    play.begin()
    assert play.put(QueueReady("orders", is_woken=True)) == [PassOn("here", ["orders"], is_busy=True)]
    assert play.put(QueueReady("orders", is_woken=False)) == []


def test_a_worker_until_empty_receives_once_more_from_each_queue_before_it_ends() -> None:
    play = Play("a", "b", until_empty=True)
    asked = play.of(Receive)
    assert {each.queue for each in asked} == {"a", "b"}
    play.put(Received(asked[0], [], play.now))
    assert play.of(Finish) == []
    # Its handler may have sent something to the other one.
    play.put(Received(asked[1], messages("b", "last"), play.now))
    [job] = play.begin()
    play.end(job)
    assert play.of(Finish) == []
    [call] = play.of(Settle)
    play.settled(call)
    asked = play.of(Receive)
    assert {each.queue for each in asked} == {"a", "b"}
    assert play.of(Finish) == []
    for each in asked:
        play.put(Received(each, [], play.now))
    assert play.of(Finish) == [Finish("empty")]


# Settlements.


def test_a_lease_that_is_complete_is_settled_at_once() -> None:
    play = Play()
    play.receive("a", "b")
    first, second = play.begin(2)
    play.end(first)
    assert play.of(Settle) == []
    play.end(second)
    assert ids(play.of(Settle)) == ["a", "b"]


@pytest.mark.parametrize(
    ("concurrency", "verdict", "seconds"),
    [(1, None, 0.1), (1, DOWN, 0.003), (1, Released(), 0.003), (4, None, 0.003)],
)
def test_a_success_waits_for_others_while_no_slot_is_idle(
    concurrency: int, verdict: Verdict, seconds: float
) -> None:
    play = Play(concurrency=concurrency)
    play.receive("a", "b", "c")
    [first] = play.begin()
    play.end(first, verdict=verdict)
    assert play.of(Settle) == []
    assert play.machine.due_at - play.now == pytest.approx(seconds)
    assert play.later(seconds - 0.001) == []
    play.later(0.002)
    assert ids(play.of(Settle)) == ["a"]


def test_a_success_waits_for_a_small_share_of_its_lease() -> None:
    play = Play(concurrency=1, gather=1_000.0)
    play.receive("a", "b", lease=20.0)
    [first] = play.begin()
    play.end(first)
    assert play.machine.due_at - play.now == pytest.approx(1.0)


def test_three_calls_settle_at_once_and_what_is_gathered_meanwhile_follows_them() -> None:
    play = Play("a", "b", "c", "d", concurrency=20)
    for queue in "abcd":
        play.receive(queue, queue=queue)
    jobs = play.begin(4)
    play.end(*jobs)
    calls = play.of(Settle)
    assert ids(calls) == ["a", "b", "c"]
    assert play.machine.due_at > play.now
    play.settled(calls[0])
    assert ids(play.of(Settle)) == ["d"]


def test_what_the_transaction_of_a_handler_has_acked_needs_no_call() -> None:
    play = Play()
    play.receive("a")
    play.end(*play.begin(), verdict=Gone("acked"))
    assert (play.of(Settle), play.machine.backlog, play.machine.settled) == ([], 0, 1)


def test_returned_messages_are_polled_for() -> None:
    play = Play()
    play.receive("a")
    play.end(*play.begin(), verdict=DOWN)
    [call] = play.of(Settle)
    play.put(SettlementEnded("here", call.lease, 1, is_returned=True))
    assert Poll("here") in play.effects


def test_routine_is_an_effect_while_an_observer_hears_of_it() -> None:
    for observers, count in (((), 0), ((print,), 2)):
        play = Play(observers=observers, in_batches=True)
        play.receive("a", "b")
        play.end(*play.begin())
        assert len(play.of(MessageHandled)) == count
        assert play.machine.handled == 2


# Leases.


def test_a_lease_is_extended_when_a_third_of_it_is_over_and_once_at_a_time() -> None:
    play = Play(lease_max=45.0)
    play.receive("a")
    [job] = play.begin()
    play.later(9.9)
    assert play.of(Extend) == []
    # It looks twelve times in a lease.
    play.later(2.6)
    assert play.of(Extend) == [Extend(job.lease, 30.0)]
    assert play.later(10) == []
    began_at = play.now - 10
    play.put(ExtensionEnded(job.lease, 1, began_at, 30.0))
    assert job.lease.ends_at == began_at + 30
    assert play.of(LeaseExtended) != []
    assert [each.ids for each in play.of(FindCancelled)] == [[job.messages[0].message_id]]
    # Up to the age of lease_max.
    play.later(2.6)
    [extension] = play.of(Extend)
    assert extension.seconds == pytest.approx(45.0 - 25.1)


def test_lease_that_lasts_to_its_longest_is_not_extended_again() -> None:
    play = Play(lease_max=40.0)
    play.receive("a")
    [job] = play.begin()
    play.later(10.1)
    [extension] = play.of(Extend)
    play.put(ExtensionEnded(job.lease, 1, play.now, extension.seconds))
    assert play.later(20) == []
    assert play.of(Extend) == []
    play.later(9.9)
    assert play.of(LeaseLost) != []


def test_an_extension_that_failed_is_tried_again() -> None:
    play = Play()
    play.receive("a")
    [job] = play.begin()
    play.later(10.1)
    play.put(ExtensionEnded(job.lease, None, play.now, 30.0))
    play.later(2.6)
    assert play.of(Extend) == [Extend(job.lease, 30.0)]


def test_a_short_lease_does_not_wait_for_a_long_one() -> None:
    play = Play("a", "b", lease_max=100_000.0)
    play.receive(1, queue="a", lease=80_000.0)
    play.receive(2, queue="b", lease=30.0)
    play.later(10.1)
    assert [each.lease.queue for each in play.of(Extend)] == ["b"]


def test_a_lost_lease_drops_what_waits_and_cancels_what_runs() -> None:
    play = Play(concurrency=1)
    play.receive("a", "b")
    [job] = play.begin()
    play.later(10.1)
    play.put(ExtensionEnded(job.lease, 0, play.now, 30.0))
    assert [each.count for each in play.of(LeaseLost)] == [2]
    assert [each.replace for each in play.of(Abandon)] == [True]
    assert job.is_cancelled
    assert play.places.waiting == []
    assert sorted(ids(play.of(Settle))) == ["a", "b"]
    # The handler that ends all the same is decided already.
    assert play.end(job) == []


def test_a_settled_lease_is_not_extended() -> None:
    play = Play()
    play.receive("a")
    play.end(*play.begin())
    play.settled(*play.of(Settle))
    play.later(60)
    assert play.of(Extend) == []
    assert play.machine.due_at == math.inf


# Limits of handlers.


def test_handler_beyond_its_limit_is_nacked_and_its_slot_is_replaced() -> None:
    play = Play(handler_timeout=5.0)
    play.receive("a", "b")
    first, second = play.begin(2)
    play.end(second)
    play.later(0.1)
    play.settled(*play.of(Settle))
    play.later(4.8, HandlersLooked())
    assert play.of(HandlerOverran) == []
    play.later(0.1, HandlersLooked())
    [overran] = play.of(HandlerOverran)
    assert overran.message_id == first.messages[0].message_id
    assert overran.seconds == pytest.approx(5.0)
    assert [each.replace for each in play.of(Abandon)] == [True]
    [call] = play.of(Settle)
    assert isinstance(call.verdict, HandlerFailure)
    assert (call.verdict.category, call.verdict.error) == ("TRANSIENT", "the handler took longer than 5 s")


def test_handler_beyond_the_longest_lease_is_nacked_while_the_lease_holds() -> None:
    play = Play(lease_max=100.0)
    play.receive("a", lease=60.0)
    play.begin()
    play.later(97.9, HandlersLooked())
    assert play.of(HandlerOverran) == []
    play.later(0.2, HandlersLooked())
    assert [each.seconds for each in play.of(HandlerOverran)] == [pytest.approx(98.1)]


def test_handler_near_its_limit_is_named_once() -> None:
    play = Play(handler_timeout=10.0, slow_share=0.5)
    play.receive("a")
    play.begin()
    looked = [each for _ in range(5) for each in play.later(1, HandlersLooked())]
    [slow] = [each for each in looked if isinstance(each, HandlerSlow)]
    assert (slow.seconds, slow.limit, slow.usual) == (5.0, 10.0, None)
    assert Report("here") in looked
    play.later(1, HandlersLooked())
    assert play.of(HandlerSlow) == []


def test_handlers_are_looked_at_again_and_again() -> None:
    for settings, tick in (({}, 1.0), ({"handler_timeout": 60.0}, 0.05), ({"handler_timeout": 0.2}, 0.01)):
        play = Play(**settings)
        for _ in range(3):
            play.put(HandlersLooked())
            assert play.of(Later) == [Later(play.now + tick, HandlersLooked())]


# Cancelled messages.


def test_handler_of_a_cancelled_message_is_cancelled_and_its_failure_is_a_release() -> None:
    play = Play(concurrency=2)
    play.receive("a", "b", "c")
    first, second = play.begin(2)
    play.put(CancelAsked({"mail"}))
    assert play.of(FindCancelled) == []
    play.put(CancelAsked({"orders"}))
    [asked] = play.of(FindCancelled)
    assert len(asked.ids) == 3
    waiting = play.places.waiting[0]
    gone = {first.messages[0].message_id: False, waiting.messages[0].message_id: True}
    play.put(CancelsFound(asked.lease, gone))
    assert [each.slot.job for each in play.of(Cancel)] == [first]
    assert [each.is_cancelled for each in (first, second, waiting)] == [True, False, True]
    assert [each.is_taken for each in (first, second, waiting)] == [False, False, True]
    play.end(first, verdict=DOWN)
    play.later(0.01)
    assert [call.verdict for call in play.of(Settle)] == [Released()]


def test_message_that_its_transaction_may_have_acked_is_not_cancelled() -> None:
    play = Play()
    play.receive("a")
    [job] = play.begin()
    job.is_doubtful = True
    play.put(CancelsFound(job.lease, {job.messages[0].message_id: False}))
    assert (play.effects, job.is_cancelled) == ([], False)


# Groups and kinds.


def test_group_goes_on_with_the_next_message_after_a_success_and_drops_its_lease_after_a_failure() -> None:
    for verdict, waiting in ((None, ["b"]), (DOWN, [])):
        play = Play(concurrency=5)
        play.put(PolicySeen("orders", is_ordered=True))
        play.receive("a", "b", "c", group="blue")
        [job] = play.begin()
        assert play.places.waiting == []
        play.end(job, verdict=verdict)
        assert [each.messages[0].body for each in play.places.waiting] == waiting
        assert play.machine.held == (2 if waiting else 0)


def test_kind_of_messages_goes_up_to_its_limit_over_all_queues() -> None:
    async def handle(message: Message) -> None: ...

    handler = replace(look_at(handle, takes_batches=False), limit_of=lambda message: ("kind", 2))
    play = Play("a", "b", handler=handler)
    play.receive(1, 2, queue="a")
    play.receive(3, queue="b")
    assert [job.messages[0].body for job in play.places.waiting] == [1, 2]
    first, _ = play.begin(2)
    play.end(first)
    assert [job.messages[0].body for job in play.places.waiting] == [3]


# Messages that are handled alone.


def alone(play: Play) -> list[Any]:
    return [effect.job.messages[0].body for effect in play.effects if isinstance(effect, BeginAlone)]


def test_message_alone_waits_until_handlers_end_and_their_settlements_are_confirmed() -> None:
    play = Play("orders", "others", concurrency=3)
    play.receive("first", "second")
    first, second = play.begin(2)
    play.end(second)
    play.receive("suspect", queue="others", slot=0)
    assert alone(play) == []
    assert play.put(QueueReady("orders", is_woken=True)) == [PassOn("here", ["orders"], is_busy=True)]
    play.end(first)
    assert alone(play) == []
    [call] = play.of(Settle)
    assert play.later(4.9) == []
    play.settled(call)
    assert alone(play) == ["suspect"]


def test_message_alone_waits_for_a_server_that_does_not_confirm_for_five_seconds() -> None:
    play = Play()
    play.receive("first")
    play.end(*play.begin())
    play.receive("suspect", slot=0)
    assert alone(play) == []
    assert play.machine.due_at - play.now <= 5.0
    play.later(4.9)
    assert alone(play) == []
    play.later(0.2)
    assert alone(play) == ["suspect"]


def test_message_alone_releases_what_no_handler_has_begun_and_receives_nothing_until_it_is_over() -> None:
    play = Play("orders", "others", concurrency=2)
    play.put(QueueReady("orders", is_woken=True), QueueReady("others", is_woken=True))
    asked = {each.queue: each for each in play.of(Receive)}
    play.put(Received(asked["orders"], messages("orders", "first", "second"), play.now))
    [first] = play.begin()
    play.put(Received(asked["others"], messages("others", "suspect", slot=0), play.now))
    assert play.places.waiting == []
    play.end(first)
    assert sorted(ids(play.of(Settle))) == ["first", "second"]
    play.settled(*play.of(Settle))
    [begin] = play.of(BeginAlone)
    play.put(AloneBegun(begin.job, begin.job.messages), QueueReady("orders", is_woken=False))
    assert (play.places.waiting, play.of(Receive)) == ([begin.job], [])
    play.end(*play.begin())
    assert [each.queue for each in play.of(Receive)] == ["orders"]


def test_message_alone_that_has_no_lease_any_more_is_released_and_the_next_one_begins() -> None:
    play = Play("orders", "others")
    play.put(QueueReady("orders", is_woken=True), QueueReady("others", is_woken=True))
    asked = play.of(Receive)
    play.put(*[Received(each, messages(each.queue, each.queue, slot=0), play.now) for each in asked])
    assert len(alone(play)) == 1
    [begin] = play.of(BeginAlone)
    play.put(AloneBegun(begin.job, []))
    [call] = play.of(Settle)
    assert (call.verdict, alone(play)) == (Released(), [])
    play.settled(call)
    assert len(alone(play)) == 1


# The breaker.


def test_breaker_tries_opens_and_looks_again_when_its_pause_is_over() -> None:
    play = Play(breaker=BreakerPolicy(failures=1, tries=1, pause=5.0), concurrency=1)
    play.receive("a")
    play.end(*play.begin(), verdict=DOWN)
    assert play.of(BreakerTried) == [BreakerTried("orders")]
    play.settled(*play.of(Settle))
    [asked] = play.of(Receive)
    assert (asked.quantity, asked.is_trial, asked.is_newest) == (1, True, True)
    play.put(Received(asked, messages("orders", "b"), play.now))
    play.end(*play.begin(), verdict=DOWN)
    assert play.of(BreakerOpened) == [BreakerOpened("orders", 5.0, 2, "down")]
    later = play.of(Later)[-1]
    assert later.at == play.now + 5
    play.settled(*play.of(Settle))
    assert play.put(QueueReady("orders", is_woken=True)) == [PassOn("here", ["orders"], is_busy=False)]
    play.later(5, later.event)
    assert (play.of(BreakerTried), len(play.of(Receive))) == ([BreakerTried("orders")], 1)


def test_command_closes_the_breaker_and_the_queue_is_received_from() -> None:
    play = Play(breaker=BreakerPolicy(failures=1, tries=1, pause=3_600.0), concurrency=1)
    play.receive("a")
    play.end(*play.begin(), verdict=DOWN)
    play.settled(*play.of(Settle))
    play.put(Received(play.of(Receive)[0], messages("orders", "b"), play.now))
    play.end(*play.begin(), verdict=DOWN)
    assert len(play.of(BreakerOpened)) == 1
    play.put(BreakerCloseAsked("orders"))
    assert play.of(BreakerClosed) == [BreakerClosed("orders")]
    assert Report("here") in play.effects
    assert [each.is_trial for each in play.of(Receive)] == [False]


# Shards, commands and bugs.


def test_shard_that_is_left_is_told_of_when_no_receive_is_under_way() -> None:
    play = Play("a", "b")
    play.put(QueueReady("a", is_woken=False))
    [asked] = play.of(Receive)
    assert play.put(QueueLeft("a"), QueueLeft("b")) == [ShardLeft("b")]
    play.put(Received(asked, [], play.now))
    assert ShardLeft("a") in play.effects
    assert play.put(QueueReady("a", is_woken=True)) == []
    assert play.put(QueuesJoined("here", ["a"], is_later=True)) == [ShardJoined("a")]
    assert play.put(QueueReady("a", is_woken=True)) != []


def test_what_is_said_of_a_queue_that_has_not_joined_is_kept_or_ignored() -> None:
    play = Play("a")
    events = (QueueReady("b", is_woken=True), QueueEmpty("b"), PolicySeen("b", is_ordered=True))
    assert play.put(*events) == []
    play.put(QueuesJoined("here", ["b"], is_later=True))
    assert play.machine.sources["b"].is_ordered


def test_commands_are_asked_for_at_once_and_stop_the_worker() -> None:
    play = Play()
    assert play.put(CommandAsked("here")) == [Report("here")]
    assert play.put(StopAsked()) == [Finish("command")]


def test_bug_of_a_part_ends_the_worker() -> None:
    error = RuntimeError("a bug")
    assert Play().put(PartFailed(error)) == [Crash(error)]


# The end.


def test_worker_that_stops_receives_nothing_and_releases_what_no_handler_has_begun() -> None:
    play = Play(concurrency=3)
    play.receive("a", "b")
    [job] = play.begin()
    play.put(Stopping(), QueueReady("orders", is_woken=True))
    assert play.of(Receive) == []
    play.put(ReceivesEnded())
    play.later(0.01)
    assert [(each.verdict, ids([each])) for each in play.of(Settle)] == [(Released(), ["b"])]
    assert play.machine.held == 1
    play.settled(*play.of(Settle))
    play.end(job)
    assert (ids(play.of(Settle)), play.machine.held) == (["a"], 0)


def test_message_that_comes_with_the_last_receive_is_released() -> None:
    play = Play()
    play.put(QueueReady("orders", is_woken=True))
    [asked] = play.of(Receive)
    play.put(Stopping())
    play.put(Received(asked, messages("orders", "late"), play.now), ReceivesEnded())
    assert [(each.verdict, ids([each])) for each in play.of(Settle)] == [(Released(), ["late"])]


def test_handlers_that_run_after_the_grace_period_are_cancelled_and_all_is_settled_at_once() -> None:
    play = Play(concurrency=2, gather=1_000.0)
    play.receive("a", "b", "c")
    first, second = play.begin(2)
    play.end(first)
    play.put(Stopping())
    play.put(GraceEnded())
    assert [(each.slot.job, each.replace) for each in play.of(Abandon)] == [(second, False)]
    assert sorted(ids(play.of(Settle))) == ["a", "b", "c"]
    assert play.machine.held == 0


def test_last_settlements_do_not_wait_for_a_message_that_a_thread_is_about_to_begin() -> None:
    play = Play(concurrency=1, gather=1_000.0)
    play.receive("a", "b")
    [first] = play.begin()
    play.places.waiting.pop()
    play.end(first)
    play.put(Stopping(), ReceivesEnded())
    assert play.of(Settle) == []
    play.put(GraceEnded())
    assert ids(play.of(Settle)) == ["a"]


def test_breaker_opens_when_the_last_message_of_its_trial_is_released_behind_a_failed_one() -> None:
    play = Play(breaker=BreakerPolicy(failures=1, tries=2, pause=5.0), concurrency=2)
    play.put(PolicySeen("orders", is_ordered=True))
    play.receive("a", group="blue")
    play.end(*play.begin(), verdict=DOWN)
    play.settled(*play.of(Settle))
    [asked] = play.of(Receive)
    play.put(Received(asked, messages("orders", "b", "c", group="blue"), play.now))
    play.end(*play.begin(), verdict=DOWN)
    assert play.of(BreakerOpened) == [BreakerOpened("orders", 5.0, 2, "down")]
