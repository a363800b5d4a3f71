"""JSON Schemas of queues: what fits is what JSON Schema says, and no way into a queue goes past the check."""

import json
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema_rs import Draft202012Validator
from tests.schemas import qualified
from tests.sql.queue import Connection, Queue, kill, sqlstate_of

SCHEMA = {
    "type": "object",
    "required": ["order"],
    "properties": {
        "order": {"type": "integer", "minimum": 1},
        "state": {"enum": ["new", "paid"]},
        "lines": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/line"}},
        "note": {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "null"}]},
    },
    "additionalProperties": False,
    "$defs": {"line": {"required": ["sku"], "properties": {"sku": {"type": "string", "minLength": 1}}}},
}
# A call that sends `{}`, which does not fit; with the check off each succeeds.
SENDS = [
    "send('orders', '{}'::jsonb)",
    "send('orders', '{}', '{}'::jsonb)",
    "send('orders', '{}'::jsonb, 5)",
    "send('orders', null::jsonb)",
    """send_batch('orders', array['{"order": 1}', '{}']::jsonb[])""",
    """send_batch('orders', array['{"order": 1}', '{}']::jsonb[], array['{}', '{}']::jsonb[])""",
    "send_messages('orders', array['{}'::jsonb])",
    "send_messages('orders', array['{}'::jsonb], dedup_ids => array['a'])",
    "send_topic('a.b', '{}')",
    "send_batch_topic('a.b', array['{}']::jsonb[])",
    "schedule('nightly', 'orders', '0 0 * * *', '{}')",
    "create_batch('orders', '{}')",
    "replay('more', 'orders')",
    "redrive_message('orders', 1, '{}')",
    """redrive('orders', patch => '[{"op": "remove", "path": "/order"}]')""",
    (
        "redrive('orders', dead_letter_ids => array(select dead_letter_id from spanmq.dead_letters('orders')),"
        " new_messages => array['{}'::jsonb])"
    ),
]


def set_schema(connection: Connection, schema: object, *, checked: bool = True) -> None:
    connection.execute("select spanmq.set_schema('orders', %s, checked => %s)", [json.dumps(schema), checked])


def message_of(connection: Connection, call: str) -> str:
    with pytest.raises(psycopg.Error) as raised, connection.transaction():
        connection.execute(f"select * from {qualified(call)}".encode())
    assert raised.value.sqlstate == "MQ065", raised.value
    return raised.value.diag.message_primary or ""


NAMES = st.sampled_from(["a", "b", "c d"])
NUMBERS = (-2, -1.5, -1, 0, 0.5, 1, 1.0, 2, 2.5, 3, 1e30)
SCALARS = (None, False, True, *NUMBERS, "", "a", "\u00fc", "a\U0001f600", "abc", '"\\"')
BODIES: tuple[Any, ...] = (
    *(*SCALARS, [], [1], ["a", None], [0, 1, 2], [[1], []], {}, {"a": 1, "b": None}, {"a": {"b": 0.5}}),
    *({"a": "x", "c d": [1, "a"]}, {"b": [{"a": 1}, {"a": "a"}]}, [{"a": {"b": [0]}}, {"a": True}]),
)
TYPES = st.sampled_from(["object", "array", "string", "number", "integer", "boolean", "null"])
SIZES = st.integers(0, 3)
LEAVES = st.fixed_dictionaries(
    {},
    optional={
        "type": TYPES | st.just(["integer", "number"]) | st.lists(TYPES, min_size=1, max_size=3, unique=True),
        "enum": st.lists(st.sampled_from(BODIES), min_size=1, max_size=9),
        "const": st.sampled_from(BODIES),
        "required": st.lists(NAMES, max_size=2, unique=True),
        **dict.fromkeys(
            ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), st.sampled_from(NUMBERS)
        ),
        **dict.fromkeys(("minItems", "maxItems", "minLength", "maxLength"), SIZES),
    },
)


def deeper(each: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    parts = {
        "properties": st.dictionaries(NAMES, each, max_size=2),
        "additionalProperties": each,
        "items": each,
        "anyOf": st.lists(each, min_size=1, max_size=2),
        "allOf": st.lists(each, min_size=1, max_size=2),
        "$ref": st.just("#/$defs/d"),
    }
    nested = st.fixed_dictionaries({}, optional=parts)
    return st.builds(lambda leaf, more: {**leaf, **more}, LEAVES | st.just({}), nested)


SCHEMAS = st.recursive(st.booleans() | LEAVES, deeper, max_leaves=5)


def test_what_fits_is_what_json_schema_says(connection: Connection) -> None:
    tops = st.builds(lambda top, d: {"$defs": {"d": d}, "allOf": [top]}, SCHEMAS, LEAVES)

    @given(tops)
    @settings(max_examples=200, derandomize=True)
    def agree(schema: dict[str, Any]) -> None:
        text = json.dumps(schema)
        found = connection.execute(
            "select spanmq_core.schema_fault(%s, true), array(select spanmq_core.misfit(b, %s, %s) is null"
            " from unnest(%s::jsonb[]) with ordinality u (b, n) order by n)",
            [text, text, text, [json.dumps(each) for each in BODIES]],
        ).fetchone()
        validator = Draft202012Validator(schema)
        assert found == (None, [validator.is_valid(each) for each in BODIES])

    agree()


@pytest.mark.parametrize("call", SENDS)
def test_no_way_into_the_queue_goes_past_the_check(orders: Queue, call: str) -> None:
    connection = orders.connection
    connection.execute(
        "select pgmq.bind_topic('a.b', 'orders'), pgmq.create('more'), pgmq.send('more', '{}')"
    )
    connection.execute("""select pgmq.send('orders', '{"order": 1}')""")
    kill(connection, [1])
    set_schema(connection, SCHEMA, checked=False)
    with connection.transaction(force_rollback=True):
        connection.execute(f"select * from {qualified(call)}".encode())
    set_schema(connection, SCHEMA)
    before = orders.value("select count(*) from pgmq.q_orders")
    assert "does not fit the schema of queue orders: $" in message_of(connection, call)
    assert orders.value("select count(*) from pgmq.q_orders") == before


def test_copied_rows_are_checked_before_they_are_messages(orders: Queue) -> None:
    connection = orders.connection
    set_schema(connection, SCHEMA)
    for begin, end in (
        ("copy_begin('orders', 2)", "copy_publish('orders', array[{0}], array[{1}])"),
        ("bulk_reserve('orders', 'w', 1, 2)", "bulk_seal('orders', array[{2}])"),
    ):
        run = connection.execute(f"select to_jsonb(r) from spanmq.{begin} r".encode()).fetchone()
        assert run is not None
        first, last, table = run[0]["first_id"], run[0]["last_id"], run[0]["log_table"]
        publish = f"select spanmq.{end}".format(first, last, run[0].get("block_id"))
        insert = f"insert into spanmq_core.{table} (msg_id, enqueued_at, message) values (%s, now(), %s)"
        connection.execute(insert.encode(), [first, '{"order": 1}'])
        with connection.transaction(force_rollback=True):
            connection.execute(insert.encode(), [last, '{"order": "x"}'])
            assert sqlstate_of(connection, publish) == "MQ065"
        connection.execute(insert.encode(), [last, '{"order": 2}'])
        connection.execute(publish.encode())


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("17", "$ must be object, not number"),
        ("{}", "$.order is missing"),
        ('{"order": "1"}', "$.order must be integer, not string"),
        ('{"order": 1.5}', "$.order must be an integer"),
        ('{"order": 0}', "$.order must be at least 1"),
        ('{"order": 1, "state": "old"}', '$.state must be one of ["new", "paid"]'),
        ('{"order": 1, "lines": []}', "$.lines must have at least 1 items"),
        ('{"order": 1, "lines": [{"sku": "a"}, {"sku": 7}]}', "$.lines[1].sku must be string, not number"),
        (
            '{"order": 1, "note": "long"}',
            "$.note fits nothing of anyOf: must have at most 3 characters, or must be null, not string",
        ),
        ('{"order": 1, "a b": 1}', '$["a b"] is not allowed'),
    ],
)
def test_error_has_the_place_and_the_reason(orders: Queue, body: str, fault: str) -> None:
    set_schema(orders.connection, SCHEMA)
    single = message_of(orders.connection, f"send('orders', '{body}'::jsonb)")
    assert single == f"a body does not fit the schema of queue orders: {fault}"
    batch = message_of(
        orders.connection, f"""send_batch('orders', array['{{"order": 1}}', '{body}']::jsonb[])"""
    )
    assert batch == f"body 2 of 2 does not fit the schema of queue orders: {fault}"


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        (17, "$ must be one of"),
        ({"type": "objekt"}, "$.type fits nothing"),
        ({"properties": {"a": {"minLength": -1}}}, "$.properties.a.minLength must be at least 0"),
        ({"items": [{}]}, "$.items must be one of"),
        ({"properties": {"a": {"pattern": "x"}}}, "$.properties.a.pattern is not allowed"),
        ({"$ref": "#/$defs/none"}, "$..$ref must be # or name one of $defs"),
        ({"$ref": "http://x/y"}, "$..$ref must be # or name one of $defs"),
        ({"anyOf": [{"$ref": "#"}]}, "$..$ref leads back to itself, or through more than 32 others: #"),
        (
            {"$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}}},
            "$..$ref leads back to itself",
        ),
    ],
)
def test_schema_that_is_not_valid_is_refused_with_its_place(
    orders: Queue, schema: object, place: str
) -> None:
    call = f"select spanmq.set_schema('orders', '{json.dumps(schema)}', checked => true)"
    with pytest.raises(psycopg.Error) as raised, orders.connection.transaction():
        orders.rows(call)
    assert raised.value.sqlstate == "MQ002"
    assert f"the schema is not valid at {place}" in str(raised.value)
    assert orders.rows("select * from spanmq.get_schema('orders')") == [(None, False)]


def test_schema_that_only_describes_may_have_any_keyword(orders: Queue) -> None:
    schema = {"type": "object", "patternProperties": {"^a": {}}, "properties": {"a": {"pattern": "^x"}}}
    set_schema(orders.connection, schema, checked=False)
    assert orders.rows("select * from spanmq.get_schema('ORDERS')") == [(schema, False)]
    orders.send(1)
    assert sqlstate_of(orders.connection, """select spanmq.set_schema('orders', '{"type": 1}')""") == "MQ002"


def test_schema_that_refers_to_itself_checks_trees(orders: Queue) -> None:
    set_schema(orders.connection, {"type": "array", "items": {"$ref": "#"}})
    orders.rows("select pgmq.send('orders', '[[], [[]]]')")
    assert message_of(orders.connection, "send('orders', '[[], [[1]]]'::jsonb)").endswith(
        "$[1][0][0] must be array, not number"
    )
    deep = "[" * 5000 + "]" * 5000
    assert sqlstate_of(orders.connection, f"select pgmq.send('orders', '{deep}')") == "54001"


def chain(levels: int, *, keyword: str = "allOf") -> dict[str, Any]:
    """Return a schema with two references to the next level at each level."""
    ends = {f"d{n}": {keyword: [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)}
    return {"$ref": "#/$defs/d0", "$defs": {**ends, f"d{levels}": {"type": "string"}}}


@pytest.mark.parametrize("checked", [True, False])
def test_schema_of_many_references_is_refused_at_once(orders: Queue, checked: bool) -> None:
    orders.rows("set local statement_timeout = '20s'")
    set_schema(orders.connection, chain(60), checked=False)
    many = {"title": "x" * 100_000}
    circle = {"$ref": "#/$defs/a", "$defs": {n: {"anyOf": [{"$ref": f"#/$defs/{n}"}] * 20} for n in "ab"}}
    for schema in (many, *([chain(60), chain(33, keyword="anyOf"), circle] if checked else [])):
        call = f"select spanmq.set_schema('orders', '{json.dumps(schema)}', {checked})"
        assert sqlstate_of(orders.connection, call) == "MQ002"


@pytest.mark.parametrize("keyword", ["allOf", "anyOf"])
@pytest.mark.parametrize("body", ['"fits"', "17"])
def test_check_of_a_body_has_a_limit(orders: Queue, keyword: str, body: str) -> None:
    orders.rows("set local statement_timeout = '60s'")
    set_schema(orders.connection, chain(30, keyword=keyword))
    send = f"select pgmq.send_batch('orders', array_fill('{body}'::jsonb, '{{1000}}'))"
    if (keyword, body) == ("anyOf", '"fits"'):
        orders.rows(send)
    else:
        with pytest.raises(
            psycopg.Error, match=r"takes more than 250000 steps to check|must be string"
        ) as raised:
            orders.rows(send)
        assert raised.value.sqlstate == "MQ065"


def test_references_that_double_with_each_level_of_a_body_have_a_limit(orders: Queue) -> None:
    orders.rows("set local statement_timeout = '60s'")
    set_schema(orders.connection, {"allOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}}]})
    orders.rows("select pgmq.send('orders', '[[[[[]]]]]')")
    deep = "[" * 60 + "]" * 60
    assert "takes more than" in message_of(orders.connection, f"send('orders', '{deep}'::jsonb)")


@pytest.mark.parametrize("keyword", ["const", "default", "examples", "enum"])
def test_value_that_looks_like_a_reference_is_none(orders: Queue, keyword: str) -> None:
    value = {"$ref": "http://x/y"}
    set_schema(orders.connection, {"properties": {"a": {keyword: [value]}, keyword: {"type": "string"}}})
    wrong = {"properties": {keyword: {"items": value}}}
    assert sqlstate_of(orders.connection, lambda: set_schema(orders.connection, wrong)) == "MQ002"


def test_schema_goes_with_null_and_with_the_queue(orders: Queue) -> None:
    set_schema(orders.connection, SCHEMA)
    orders.rows("select spanmq.set_schema('orders', null)")
    assert orders.rows("select * from spanmq.get_schema('orders')") == [(None, False)]
    orders.send(1)
    set_schema(orders.connection, SCHEMA)
    orders.rows("select pgmq.drop_queue('orders')")
    orders.rows("select pgmq.create('orders')")
    assert orders.rows("select * from spanmq.get_schema('orders')") == [(None, False)]
    assert orders.rows("select * from spanmq_core.body_schema") == []
    orders.send(1)


def test_subscription_has_the_schema_of_its_queue(orders: Queue) -> None:
    set_schema(orders.connection, SCHEMA)
    orders.rows("select spanmq.create_subscription('audit', 'orders')")
    assert orders.rows("select * from spanmq.get_schema('audit')") == [(SCHEMA, True)]
    assert sqlstate_of(orders.connection, "select spanmq.set_schema('audit', 'true')") == "MQ060"
    assert sqlstate_of(orders.connection, "select spanmq.set_schema('none', 'true')") == "42P01"
    assert sqlstate_of(orders.connection, "select spanmq.set_schema('orders', 'true', null)") == "MQ002"


@pytest.mark.parametrize(
    "call",
    [
        "redrive_message('audit', 1, '{}')",
        """redrive('audit', patch => '[{"op": "remove", "path": "/order"}]')""",
        (
            "redrive('audit', dead_letter_ids => array(select dead_letter_id from spanmq.dead_letters('audit')),"
            " new_messages => array['{}'::jsonb])"
        ),
    ],
)
def test_repair_in_a_subscription_is_checked_too(orders: Queue, call: str) -> None:
    connection = orders.connection
    orders.rows("select spanmq.create_subscription('audit', 'orders')")
    orders.rows("""select pgmq.send('orders', '{"order": 1}')""")
    orders.rows("select pgmq.delete('orders', 1)")
    orders.rows("select spanmq.reject('audit', lease_id, array[msg_id]) from spanmq.receive('audit')")
    set_schema(connection, SCHEMA)
    message_of(connection, call)
    set_schema(connection, SCHEMA, checked=False)
    connection.execute(f"select * from {qualified(call)}".encode())
