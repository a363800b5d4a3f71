"""Many receivers at once: each message once, none lost, groups in order."""

import json
import random
import threading
from collections import Counter

import pytest
from tests.schemas import qualified
from tests.sql.race.sessions import Race, Session, together

CLAIMS = {
    "read": "select msg_id from pgmq.read(%s, 3600, %s)",
    "receive in slots": "select msg_id from spanmq.receive(%s, %s, 3600, 3)",
    "read matching": "select msg_id from pgmq.read(%s, 3600, %s, '{}'::jsonb || '{\"kind\": 1}')",
    "read_grouped": "select msg_id from pgmq.read_grouped(%s, 3600, %s)",
    "read_grouped_rr": "select msg_id from pgmq.read_grouped_rr(%s, 3600, %s)",
    "pop": "select msg_id from pgmq.pop(%s, %s)",
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_each_message_is_delivered_once(race: Race, claim: str) -> None:
    headers = "array(select jsonb_build_object('x-pgmq-group', 'g' || i) from generate_series(1, 20) i)"
    bodies = "array_fill('{\"kind\": 1}'::jsonb, array[20])"
    ids: list[int] = []
    for _ in range(20):
        text = f"select pgmq.send_batch(%s, {bodies}" + (f", {headers})" if "grouped" in claim else ")")
        ids += race.main.column(text, race.queue)
    delivered: Counter[int] = Counter()

    def receive(session: Session, chance: random.Random) -> None:
        while race_goes_on():
            session.begin()
            got = session.column(CLAIMS[claim], race.queue, chance.choice((1, 2, 5, 30)))
            if chance.random() < 0.2:
                session.rollback()
                continue
            if got and "pop" not in claim:
                session.rows("select pgmq.delete(%s, %s::bigint[])", race.queue, chance.sample(got, len(got)))
            session.commit()
            delivered.update(got)

    def race_goes_on() -> bool:
        return delivered.total() < len(ids)

    together(race, receive)
    assert delivered == Counter(ids)
    assert race.left() == []


def test_expired_messages_are_delivered_again_to_one_each(race: Race) -> None:
    ids = race.send(300)
    # A third loss would have them delivered alone.
    for _ in range(2):
        race.lease(50, -1)
    delivered: Counter[int] = Counter()

    def receive(session: Session, chance: random.Random) -> None:
        while got := session.column(
            "select msg_id from pgmq.read(%s, 3600, %s)", race.queue, chance.randint(1, 40)
        ):
            delivered.update(got)

    together(race, receive)
    assert delivered == Counter(ids)


def test_group_is_worked_on_by_one_at_a_time_and_in_order(race: Race) -> None:
    groups = [f"g{i % 7}" for i in range(280)]
    ids = race.main.column(
        "select pgmq.send_batch(%s, array_fill('1'::jsonb, array[280]),"
        " array(select jsonb_build_object('x-pgmq-group', g)"
        "  from unnest(%s::text[]) with ordinality u (g, i) order by i))",
        race.queue,
        groups,
    )
    group_of = dict(zip(ids, groups, strict=True))
    busy: Counter[str] = Counter()
    seen: dict[str, list[int]] = {group: [] for group in groups}
    mutex = threading.Lock()

    def work(session: Session, chance: random.Random) -> None:
        while sum(map(len, seen.values())) < len(ids):
            name = chance.choice(("read_grouped", "read_grouped_rr", "read_grouped_head"))
            got = session.column(
                f"select msg_id from pgmq.{name}(%s, 3600, %s)", race.queue, chance.randint(1, 4)
            )
            mine = Counter(group_of[msg_id] for msg_id in got)
            with mutex:
                busy.update(mine.keys())
                assert max(busy.values(), default=0) <= 1, f"a group in two hands: {busy}"
                for msg_id in got:
                    seen[group_of[msg_id]].append(msg_id)
            # Last first: until the head of a group is settled the group is blocked.
            for msg_id in reversed(got):
                with mutex:
                    if group_of[msg_id] in mine and msg_id == min(
                        i for i in got if group_of[i] == group_of[msg_id]
                    ):
                        busy.subtract([group_of[msg_id]])
                session.rows("select pgmq.delete(%s, %s::bigint)", race.queue, msg_id)

    together(race, work)
    assert seen == {group: sorted(got) for group, got in seen.items()}
    assert race.left() == []


POLICIES = {
    "plain": {},
    "ordered": {"ordered": True},
    "limited": {"max_in_flight": 100, "rate_limit": 1000},
    "limited per group": {"max_in_flight_per_group": 100},
    "prior": {},
}


@pytest.mark.parametrize("policy", POLICIES)
def test_who_asks_for_none_keeps_nothing_from_others(race: Race, policy: str) -> None:
    for claim, query in {"receive": "select msg_id from spanmq.receive(%s, %s)", **CLAIMS}.items():
        # It is refused: it would take messages out of the middle of a group.
        if claim == "read matching" and policy in ("ordered", "limited per group"):
            continue
        race.main.rows("select spanmq.set_policy('jobs', %s::jsonb)", json.dumps(POLICIES[policy]))
        if policy == "prior":
            race.main.rows("select spanmq.send_messages('jobs', array['1']::jsonb[], priority => 9)")
        race.main.rows("select pgmq.send('jobs', '1')")
        race.main.rows("select pgmq.send('jobs', '1', headers => '{\"x-pgmq-group\": \"a\"}')")
        race.send(20)
        rehearsal = race.begun()
        assert rehearsal.rows(query, race.queue, 0) == []
        expected = race.main.column("select msg_id from pgmq.q_jobs")
        received = race.main.column("select msg_id from spanmq.receive('jobs', 100)")
        assert sorted(received) == sorted(expected), claim
        rehearsal.commit()
        race.main.rows("select pgmq.drop_queue('jobs')")
        race.take("jobs")


@pytest.mark.parametrize("n", [1, 12])
@pytest.mark.parametrize(
    "claim", ["receive('jobs', 1)", "read('jobs', 30, 1, '{\"kind\": 1}')", "read('jobs', 30, 1)"]
)
@pytest.mark.parametrize("has_priority", [False, True])
def test_claim_goes_past_what_others_hold(race: Race, n: int, claim: str, has_priority: bool) -> None:
    if has_priority:
        race.main.rows("select spanmq.send_messages('jobs', '{1}', priority => 1), pgmq.pop('jobs')")
    # Runs of one message, and one that is visible again: claims look at held ones too.
    ids = [race.main.value("select pgmq.send('jobs', '{\"kind\": 1}')") for _ in range(n + 1)]
    race.main.rows("select pgmq.set_vt('jobs', %s::bigint, 0)", ids[0])
    holders = [race.begun() for _ in range(n)]
    held = [holder.column(f"select msg_id from {qualified(claim)}") for holder in holders]
    assert [*held, race.main.column(f"select msg_id from {qualified(claim)}")] == [[id_] for id_ in ids]


def test_claim_takes_no_lower_priority_beside_a_free_higher_one(race: Race) -> None:
    send = "select spanmq.send_messages('jobs', '{1}', priority => %s)"
    low, first, second = [race.main.value(send, priority) for priority in (0, 9, 9)]
    holder = race.begun()
    assert holder.column("select msg_id from spanmq.receive('jobs', 1)") == [first]
    received = [race.main.column("select msg_id from spanmq.receive('jobs', 1)") for _ in range(2)]
    assert received == [[second], [low]]
