"""What the sessions do: a queue of few messages, and two or three programs of the seven verbs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import combinations_with_replacement

from tests.sql.interleave.machine import Call, Program

QUEUE = "jobs"
FOREVER = 3600

Step = Callable[[list[Call]], str]


@dataclass(frozen=True, slots=True)
class Scene:
    """A queue's policy and first messages, and a program for each session."""

    name: str
    programs: tuple[Program, ...]
    # The groups of the messages that it begins with; null: without a group.
    groups: tuple[str | None, ...] = (None, None, None)
    policy: str = "{}"
    # Leased, with this many seconds left, by a session that has gone; null: visible.
    leased: float | None = None
    may_deadlock: bool = False
    drops: bool = False


def say(text: str) -> Step:
    """Return the step of a fixed statement."""
    return lambda _: text


def send(group: str | None = None, quantity: int = 1) -> Step:
    headers = "null::jsonb" if group is None else f"""'{{"x-pgmq-group": "{group}"}}'::jsonb"""
    if quantity == 1:
        return say(f"select pgmq.send('{QUEUE}', '1', {headers})")
    return say(
        f"select pgmq.send_batch('{QUEUE}', array_fill('1'::jsonb, array[{quantity}]),"
        f" array_fill({headers}, array[{quantity}]))"
    )


def receive(quantity: int = 1, lease: float = FOREVER, options: str = "") -> Step:
    return say(
        "select msg_id, lease_id, group_key, attempt"
        f" from spanmq.receive('{QUEUE}', {options}qty => {quantity}, lease => {lease})"
    )


def read(quantity: int = 1, seconds: int = FOREVER) -> Step:
    return say(f"select msg_id from pgmq.read('{QUEUE}', {seconds}, {quantity})")


def pop(quantity: int = 1) -> Step:
    return say(f"select msg_id from pgmq.pop('{QUEUE}', {quantity})")


def _received(calls: list[Call]) -> tuple[str, list[str]]:
    """Return the lease and the ids of the last receive of a session; a lease of nothing if it got nothing."""
    for call in reversed(calls):
        if "spanmq.receive" in call.text and call.rows and call.sqlstate is None:
            return str(call.rows[0][1]), [str(row[0]) for row in call.rows]
    return "1", []


def of_lease(text: str, calls: list[Call], first: int = 0, last: int | None = None) -> str:
    """Return a statement on messages of the last receive."""
    lease, ids = _received(calls)
    return text.format(queue=QUEUE, lease=lease, ids=f"'{{{','.join(ids[first:last])}}}'::bigint[]")


def ack(first: int = 0, last: int | None = None) -> Step:
    text = "select msg_id, outcome from spanmq.ack('{queue}', {lease}, {ids})"
    return partial(of_lease, text, first=first, last=last)


def nack(retry_in: float = 0, first: int = 0, last: int | None = None) -> Step:
    text = f"select msg_id, outcome from spanmq.nack('{{queue}}', {{lease}}, {{ids}}, 'x', null, {retry_in})"
    return partial(of_lease, text, first=first, last=last)


def reject() -> Step:
    return partial(of_lease, "select msg_id, outcome from spanmq.reject('{queue}', {lease}, {ids}, 'x')")


def release() -> Step:
    return partial(of_lease, "select msg_id, outcome from spanmq.release('{queue}', {lease}, {ids})")


def extend() -> Step:
    return partial(of_lease, "select msg_id, outcome from spanmq.extend('{queue}', {lease}, {ids}, 3600)")


def on_ids(text: str, *places: int) -> Step:
    """Return a statement on the messages that the scene began with, by their places; {ids} in the text."""
    return say(
        text.format(queue=QUEUE, ids=f"(select array_agg(i) from {FIRST_IDS} where n in {_in(places)})")
    )


FIRST_IDS = "(select i, row_number() over (order by i) - 1 as n from public.first_ids i) f"


def _in(places: tuple[int, ...]) -> str:
    return f"({','.join(map(str, places))})"


def delete(*places: int) -> Step:
    return on_ids("select pgmq.delete('{queue}', {ids})", *places)


def archive(*places: int) -> Step:
    return on_ids("select pgmq.archive('{queue}', {ids})", *places)


def set_vt(seconds: int, *places: int) -> Step:
    return on_ids(f"select msg_id from pgmq.set_vt('{{queue}}', {{ids}}, {seconds})", *places)


def drop() -> Step:
    return say(f"select pgmq.drop_queue('{QUEUE}')")


def metrics() -> Step:
    return say(f"select queue_length, queue_visible_length from pgmq.metrics('{QUEUE}')")


def maintain() -> Step:
    return say("select count(*) from spanmq.maintain()")


BEGIN, COMMIT, ROLLBACK = say("begin"), say("commit"), say("rollback")
ORDERED = '{"ordered": true}'
GROUPED = ("a", "a", "b")

# Short programs, by name: every pair of them is a scene.
VERBS: Mapping[str, Program] = {
    "send": [send()],
    "send two": [send(quantity=2)],
    "send, open": [BEGIN, send(), COMMIT],
    "send, rolled back": [BEGIN, send(), ROLLBACK],
    "receive": [receive()],
    "receive two": [receive(2)],
    "receive, rolled back": [BEGIN, receive(2), ROLLBACK],
    "receive few retries": [receive(2, options="retries => 0, "), nack()],
    "receive the newest": [receive(2, options="newest => true, "), ack()],
    "receive and ack": [receive(2), ack()],
    "receive and ack one": [receive(2), ack(0, 1)],
    "receive and nack": [receive(2), nack()],
    "receive and nack for later": [receive(2), nack(FOREVER)],
    "receive and reject": [receive(), reject()],
    "receive and release": [receive(2), release()],
    "receive and extend": [receive(2), extend()],
    "lease that ends": [receive(2, lease=-1), ack()],
    "lease that ends, nack": [receive(2, lease=-1), nack()],
    "lease that ends, extend": [receive(2, lease=-1), extend()],
    "read": [read(2)],
    "pop": [pop(2)],
    "delete": [delete(0, 2)],
    "delete one": [delete(1)],
    "archive": [archive(1, 2)],
    "show": [set_vt(0, 0, 1)],
    "hide": [set_vt(FOREVER, 0)],
    "metrics": [metrics()],
    "maintain": [maintain()],
}
# With groups: what a message in flight, or a late sender, must do to the others.
GROUP_VERBS: Mapping[str, Program] = {
    "send late": [BEGIN, send("a"), COMMIT],
    "send": [send("a")],
    "receive": [receive(2)],
    "receive and ack": [receive(), ack(), receive()],
    "receive and nack": [receive(), nack()],
    "receive and nack for later": [receive(), nack(FOREVER)],
    "receive and release": [receive(), release()],
    "lease that ends": [receive(lease=-1), ack()],
    "receive, rolled back": [BEGIN, receive(2), ROLLBACK],
    "delete": [delete(0)],
    "show": [set_vt(0, 0)],
    "maintain": [maintain()],
}


def pairs() -> list[Scene]:
    """Return a scene for each pair of short programs, on visible messages and on those of an ended lease."""
    return [
        Scene(f"{name}, {state}", programs, leased=leased, may_deadlock=True)
        for name, programs in _pairs(VERBS)
        for state, leased in STATES
    ]


def grouped() -> list[Scene]:
    """Return a scene for each pair of programs on an ordered queue."""
    return [
        Scene(f"groups: {name}, {state}", programs, GROUPED, ORDERED, leased, may_deadlock=True)
        for name, programs in _pairs(GROUP_VERBS)
        for state, leased in STATES
    ]


STATES = (("visible", None), ("of an ended lease", -1.0))


def _pairs(verbs: Mapping[str, Program]) -> list[tuple[str, tuple[Program, ...]]]:
    return [
        (f"{first} / {second}", (verbs[first], verbs[second]))
        for first, second in combinations_with_replacement(verbs, 2)
    ]


def three() -> list[Scene]:
    """Return scenes of three sessions."""
    some = (
        "send, open",
        "receive two",
        "receive and ack",
        "receive and nack",
        "lease that ends",
        "delete",
        "show",
    )
    in_groups = ("send late", "receive", "receive and ack", "receive and nack", "lease that ends", "delete")
    return [
        *(
            Scene(" / ".join(names), tuple(VERBS[name] for name in names), may_deadlock=True)
            for names in combinations_with_replacement(some, 3)
        ),
        *(
            Scene(
                "groups: " + " / ".join(names),
                tuple(GROUP_VERBS[name] for name in names),
                GROUPED,
                ORDERED,
                may_deadlock=True,
            )
            for names in combinations_with_replacement(in_groups, 3)
        ),
    ]


def dropped() -> list[Scene]:
    """Return a scene for each short program beside a drop."""
    return [
        Scene(f"drop / {name}", ([drop()], program), leased=-1.0, may_deadlock=True, drops=True)
        for name, program in VERBS.items()
    ]
