"""W24: routing that matches every pattern there is, whatever word it begins with."""

from tests.sql.conftest import System
from tests.sql.queue import Connection, one

OTHER_PATTERNS = 2000
LOOKED_AT = """
    select (seq_tup_read + coalesce(idx_tup_fetch, 0))::int from pg_stat_xact_user_tables
    where relid in (to_regclass('spanmq_core.topic_binding'), to_regclass('pgmq.topic_bindings'))
    order by seq_tup_read is null limit 1
"""


def patterns_looked_at(session: Connection) -> int:
    """Return how many patterns a send to a topic looks at."""
    with session.transaction():
        # What the transactions before this one did may be counted here too.
        before = one(session, LOOKED_AT)
        session.execute("select pgmq.send_topic('orders.new.done', '1')")
        return int(one(session, LOOKED_AT)) - int(before)


def test_w24_patterns_that_begin_with_another_word_cost_nothing(system: System, session: Connection) -> None:
    session.execute("select pgmq.create('orders')")
    session.execute("select pgmq.bind_topic('orders.*.done', 'orders'), pgmq.bind_topic('#.done', 'orders')")
    assert patterns_looked_at(session) == 2
    session.execute(
        "select count(pgmq.bind_topic('customer-' || n || '.*.done', 'orders'))"
        " from generate_series(1, %s) n",
        [OTHER_PATTERNS],
    )
    # PGMQ compiles 2,000 regular expressions each time.
    assert patterns_looked_at(session) == (OTHER_PATTERNS + 2 if system.is_upstream else 2)
