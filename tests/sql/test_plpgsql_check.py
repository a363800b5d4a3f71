"""plpgsql_check, an extension that compiles every path of a function, finds nothing in ours without a reason here."""

import re
from importlib.resources import files

import pytest
from tests.sql.queue import Connection

# What it says of code that is as it must be: the function, what is said, and why.
REASONS = (
    (
        r".*_by_lane",
        r'relation "spanmq_core\.lane_\d+" does not exist|function spanmq_core\.archive_by_lane_\d+\(.* does not exist',
        "a lane exists once a queue needs it",
    ),
    (
        "spanmq_core.archive_by_lane",
        "control reached end of function",
        "each lane returns, others raise case_not_found",
    ),
    (r".*_by_lane", r"unused parameter", "it is used by the lanes"),
    (r".*_by_lane", r'unused variable "one"', "all are made of one text, and one of them returns it"),
    (r".*", r'cast "text" value to ".*" type', "'{}' and null have the type of what they are assigned to"),
    (r".*", r"cannot determinate a result of dynamic SQL", "the name of a log or archive is a variable"),
    (
        r"spanmq_core\.(take_matching|shorten_archive)",
        r'record "\w+" is not assigned yet|never read variable',
        "dynamic SQL assigns the record",
    ),
    (r".*", r"OUT variable .* is maybe unmodified", "RETURN QUERY or dynamic SQL returns it"),
    (r"spanmq_core\.follow_changes", r'unmodified OUT variable "detail"', "maintain() has such a column"),
    (r"spanmq_core\.hold_senders", r"control reached end of function", "a loop without an end returns"),
    (r"spanmq_core\.create_queue", r'composite OUT variable "this" is not single', "it returns two values"),
    (r"pgmq\.drop_queue", r'unused parameter "partitioned"', "PGMQ's signature"),
    (r".*convert_archive_partitioned", r"unused parameter", "PGMQ's signature"),
)
CHECK = """
select format('%s.%s', n.nspname, p.proname), p.oid::regprocedure::text, concat_ws(': ', r.message, r.detail)
from pg_proc p
join pg_namespace n on n.oid = p.pronamespace
join pg_language l on l.oid = p.prolang
left join lateral (select t.tgrelid from pg_trigger t where t.tgfoid = p.oid limit 1) t on true
cross join lateral checks.plpgsql_check_function_tb(
    p.oid, coalesce(t.tgrelid, case when p.prorettype = 'trigger'::regtype then 'pgmq.meta'::regclass else 0 end),
    performance_warnings => false, fatal_errors => false) r
where l.lanname = 'plpgsql' and n.nspname in ('spanmq', 'spanmq_core', 'spanmq_call', 'pgmq', 'spanmq_adopt')
order by 2, r.lineno
"""


def test_no_function_has_an_error_or_a_warning_without_a_reason(connection: Connection) -> None:
    available = "select from pg_available_extensions where name = 'plpgsql_check'"
    if connection.execute(available).fetchone() is None:
        pytest.skip("the server does not have the extension plpgsql_check")
    connection.execute("select pgmq.create('checked')")
    # What a lane has for itself.
    lane = "select spanmq_core.open_lane(queue_id) from spanmq_core.queue where name = 'checked'"
    assert connection.execute(lane.encode()).fetchall() == [(True,)]
    # What exists only while PGMQ's queues are taken over.
    for name in ("prepare", "inspect", "lock"):
        connection.execute(files("spanmq").joinpath(f"sql/adopt/{name}.sql").read_bytes())
    connection.execute("create schema checks")
    connection.execute("create extension plpgsql_check schema checks")
    used: set[int] = set()
    problems = []
    for name, signature, message in connection.execute(CHECK).fetchall():
        places = [
            place
            for place, (function, said, _) in enumerate(REASONS)
            if re.fullmatch(function, name) and re.search(said, message)
        ]
        used.update(places)
        if not places:
            problems.append(f"{signature}: {message}")
    assert "\n".join(problems) == ""
    assert [REASONS[place] for place in range(len(REASONS)) if place not in used] == []
