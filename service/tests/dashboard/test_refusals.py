"""Fields that mean nothing: each form says so, and nothing is done."""

import pytest
from service.tests.dashboard.conftest import Person, rows
from service.tests.dashboard.test_repair import PAGE as REPAIR
from service.tests.dashboard.test_repair import body_on
from service.tests.dashboard.test_schedules import FORM

Fields = dict[str, str]
SEND = "/queue/send?queue=empty"
REDRIVE = "/queue/dead-letters/redrive"
POLICY = "/queue/policy?queue=invoices"
# What these forms could change.
STATE = """
select (pgmq.metrics('empty')).total_messages, spanmq.get_policy('invoices')::text,
    (select count(*) from spanmq.list_schedules()), (select count(*) from pgmq.list_queues()),
    (select count(*) from spanmq.dead_letters('orders')), (select count(*) from spanmq.dead_letters('invoices'))
"""
FILTERS: list[Fields] = [
    *({"error": "("}, {"payload": "{"}, {"payload": "[1]"}, {"payload": "[" * 5_000}, {"where": "$."}),
    *({"since": "yesterday"}, {"until": "0001-01-01T00:00:00+14:00"}, {"which": "none"}),
]
PACES: list[Fields] = [
    *({"limit": "0"}, {"limit": "10001"}, {"rate": "fast"}, {"rate": "0"}, {"delay": "-1"}, {"delay": "nan"}),
]
PATCHES: list[tuple[Fields, str]] = [
    ({"patch": "["}, "the patch is not valid JSON"),
    ({"patch": "{}"}, "patch must be a JSON array"),
    ({"patch": '[{"op": "remove", "path": "/none"}]'}, "the patch does not fit message"),
]
SETTINGS = [*(("max_attempts", text) for text in ("-1", "many", "[1]")), ("lease", "-1"), ("ordered", "5")]
# A form, its fields, and what it says.
FORMS: list[tuple[str, Fields, str]] = [
    *((SEND, {"body": body}, "") for body in ("", "{", "NaN", "[" * 100_000, '"\\u0000"')),
    *((SEND, {"body": "1", "headers": headers}, "") for headers in ("[]", "{")),
    *((SEND, {"body": "1", "delay": delay}, "") for delay in ("soon", "-1", "nan")),
    (SEND, {"body": "1", "headers": '{"x-pgmq-group": "a"}', "group": "b"}, ""),
    *(("/schedules/new", FORM | {name: ""}, "") for name in ("name", "cron")),
    *(
        ("/schedules/new", FORM | wrong, "")
        for wrong in ({"cron": "never"}, {"time_zone": "Mars"}, {"body": "{"})
    ),
    ("/queues/new", {"name": "x" * 48}, ""),
    *((f"{REDRIVE}?queue=orders", pace, "") for pace in PACES),
    *((f"{REDRIVE}?queue=orders", patch, problem) for patch, problem in PATCHES),
    *((REPAIR, fields, "") for fields in ({"body": "{"}, {"body": ""}, {"body": "1", "delay": "soon"})),
    *(
        (POLICY, {f"shown-{name}": "?", f"setting-{name}": value}, "Nothing was changed")
        for name, value in SETTINGS
    ),
]


@pytest.mark.parametrize(("path", "fields", "problem"), FORMS)
def test_form_with_a_wrong_field_is_told_and_does_nothing(
    keeper_once: Person, keeper_database: str, path: str, fields: Fields, problem: str
) -> None:
    before = rows(keeper_database, STATE)
    typed = {"shown-backoff_max": "?", "setting-backoff_max": "77"} if path == POLICY else {}
    refused = keeper_once.post(path, "/queue/send?queue=orders", **fields, **typed)
    assert (refused.status_code, 'role="alert"' in refused.text) == (422, True)
    assert problem in refused.text
    # What was typed stays there.
    assert path != POLICY or 'value="77"' in refused.text
    assert path != REPAIR or body_on(refused.text) == fields["body"]
    assert rows(keeper_database, STATE) == before


@pytest.mark.parametrize(
    "fields", [*FILTERS, *PACES, *(patch for patch, _ in PATCHES)], ids=lambda fields: str(fields)[:30]
)
@pytest.mark.parametrize("act", ["", "/redrive", "/discard"])
def test_address_with_a_wrong_value_is_told_and_does_nothing(
    keeper_once: Person, keeper_database: str, act: str, fields: Fields
) -> None:
    if ("which" in fields and act == "/redrive") or (fields not in FILTERS and act != "/redrive"):
        return  # no such field: only letters that wait are redriven, and nothing else has a pace
    before = rows(keeper_database, STATE)
    refused = keeper_once.get(f"/queue/dead-letters{act}", queue="orders", **fields)
    assert (refused.status_code, 'role="alert"' in refused.text) == (422, True)
    if act and fields in FILTERS:
        address = refused.request.url.raw_path.decode()
        refused = keeper_once.post(address, "/queue/send?queue=orders", confirmation="orders")
        assert refused.status_code == 422
    assert rows(keeper_database, STATE) == before
