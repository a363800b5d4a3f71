"""Table grants are followed beside sessions that drop the queue, follow the same grants, or change them."""

from tests.sql.race.sessions import Race

FOLLOW = "select role, verb from spanmq.follow_table_grants()"
GRANT = "grant insert on pgmq.q_jobs to public"
SENT = """
    select has_function_privilege('public', to_regprocedure(format('spanmq_call.may_send_%s()', queue_id)), 'execute')
    from spanmq_core.queue where name = 'jobs'
"""
WRAPPERS = "select count(*) from pg_proc where pronamespace = 'spanmq_call'::regnamespace"


def test_following_leaves_nothing_of_a_queue_that_is_dropped_meanwhile(race: Race) -> None:
    race.send(3)
    race.main.rows(GRANT)
    dropping, following = race.begun(), race.open()
    dropping.rows("select pgmq.drop_queue('jobs')")
    left = dropping.value(WRAPPERS)
    later = following.waiting(FOLLOW)
    dropping.commit()
    assert later.rows() == []
    assert following.value(WRAPPERS) == left
    assert following.rows("select from spanmq_core.followed_grant") == []


def test_two_that_follow_at_once_grant_once(race: Race) -> None:
    race.send(3)
    race.main.rows(GRANT)
    one, two = race.begun(), race.open()
    assert one.rows(FOLLOW) == [("public", "send")]
    later = two.waiting(FOLLOW)
    one.commit()
    assert later.rows() == [("public", "send")]
    assert race.main.value(SENT) is True


def test_maintenance_does_not_wait_for_a_session_that_changes_rights(race: Race) -> None:
    race.send(3)
    race.main.rows(FOLLOW)
    race.main.rows(GRANT)
    changing = race.begun()
    changing.rows("select spanmq.grant_queue('public', 'jobs', 'look')")
    while race.main.rows("select action from spanmq.maintain()"):
        pass
    assert race.main.value(SENT) is not True
    changing.commit()
    while race.main.rows("select action from spanmq.maintain()"):
        pass
    assert race.main.value(SENT) is True


def test_calls_that_find_the_same_grant_all_go_on(race: Race) -> None:
    race.send(3)
    race.main.rows(FOLLOW)
    race.main.rows(GRANT)
    one, two = race.begun(), race.open()
    for each in (one, two):
        each.rows("set role pg_signal_backend")
    first = one.value("select pgmq.send('jobs', '1')")
    later = two.waiting("select pgmq.send('jobs', '1')")
    one.commit()
    assert later.rows() == [(first + 1,)]


def test_grant_that_is_found_and_rolled_back_is_found_again(race: Race) -> None:
    race.main.rows("select pgmq.create('jobs')")
    race.main.rows(FOLLOW)
    race.main.rows(GRANT)
    one = race.begun()
    one.rows("set local role pg_signal_backend")
    one.rows("select pgmq.send('jobs', '1')")
    one.rollback()
    assert race.main.rows("select from spanmq_core.followed_grant") == []
    one.rows("set role pg_signal_backend")
    assert one.rows("select pgmq.send('jobs', '1')") == [(2,)]
