"""Requests that nobody would write: each is refused in the protocol's own form, none breaks anything."""

import json
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spanmq_service.sqs import protocol

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.text(max_size=20),
    st.sampled_from(
        ["'; drop table spanmq_core.state; --", "{}", "{", "\x00", "arn:aws:sqs:x:000000000000:q"]
    ),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


def fitting(each: Any, depth: int = 0) -> st.SearchStrategy[Any]:
    """Return values of a shape, now and then of another."""
    if each.type_name == "structure" and depth < 4:
        members = {name: fitting(member, depth + 1) for name, member in each.members.items()}
        required = {name: members.pop(name) for name in each.required_members}
        return st.fixed_dictionaries(required, optional=members)
    if each.type_name == "list" and depth < 4:
        return st.lists(fitting(each.member, depth + 1), max_size=3)
    if each.type_name == "map" and depth < 4:
        keys = st.sampled_from(getattr(each.key, "enum", None) or ["a", "AWS.x", ""])
        return st.dictionaries(keys, fitting(each.value, depth + 1), max_size=3)
    if each.type_name == "integer":
        return st.integers(-5, 50)
    names = st.sampled_from(["fuzz", "fuzz.fifo", "/000000000000/fuzz", "true", "3"])
    return st.one_of(st.text(max_size=20), names)


@pytest.mark.parametrize("action", protocol.actions())
def test_no_request_breaks_the_service(http: httpx.Client, action: str) -> None:
    described = protocol.model().operation_model(action).input_shape
    target = {"x-amz-target": f"AmazonSQS.{action}", "content-type": "application/x-amz-json-1.0"}

    @settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.one_of(fitting(described), VALUES))
    def ask(values: Any) -> None:
        # Nobody waits, not where a queue was just told to let receivers wait either.
        unsaid = 0 if action == "ReceiveMessage" else None
        if isinstance(values, dict) and isinstance(values.get("WaitTimeSeconds", unsaid), int):
            values["WaitTimeSeconds"] = 0
        answer = http.post("/", content=json.dumps(values), headers=target)
        assert answer.status_code < 500, answer.text
        if answer.status_code != 200:
            assert answer.json()["__type"].startswith("com.amazonaws.sqs#")

    ask()


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    body=st.one_of(st.binary(max_size=60), st.text(max_size=60).map(str.encode)),
    action=st.sampled_from(protocol.actions()),
)
def test_no_form_breaks_the_service(http: httpx.Client, body: bytes, action: str) -> None:
    kind = {"content-type": "application/x-www-form-urlencoded"}
    answer = http.post("/", content=b"Action=" + action.encode() + b"&" + body, headers=kind)
    assert answer.status_code < 500, answer.text
    assert answer.headers["content-type"].startswith("text/xml")
