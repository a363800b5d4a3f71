"""What is wrong with an argument is said in the caller's words, before a connection is made."""

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from spanmq.client import Client
from spanmq.client.namespace import Namespace
from spanmq.errors import InvalidArgumentError

# Parameters whose SQL functions have other names for them.
NAMES = ("quantity", "limit", "message_id", "message_ids", "delay", "throttle")
VALUES: dict[str, Any] = {
    "queue": "jobs",
    "message_id": 1,
    "message_ids": [1],
    "lease_id": 1,
    "delay": 1,
    "lease": 1,
    "result": 1,
    "headers": {},
    "body": {},
    "bodies": [{}],
    "queues": ["jobs"],
    "group": "a",
    "routing_key": "a",
    "into": "others",
}


def methods(client: Client) -> Iterator[tuple[str, Any]]:
    """Return the public methods of a client and of its namespaces, with their names."""
    names = [name for name, value in vars(type(client)).items() if isinstance(value, Namespace)]
    spaces = {"": client, **{name: getattr(client, name) for name in names}}
    for space, holder in spaces.items():
        for name, _ in inspect.getmembers(type(holder), inspect.isfunction):
            if not name.startswith("_"):
                yield f"{space}.{name}".lstrip("."), getattr(holder, name)


CASES = {
    f"{name}-{each}": (method, each)
    for name, method in methods(Client("host=localhost"))
    for each in inspect.signature(method).parameters
    if each in NAMES
}


def test_cases_are_found() -> None:
    assert {"receive-quantity", "archive-message_ids", "inspect.groups-limit"} <= CASES.keys()


@pytest.mark.parametrize(("method", "wrong"), CASES.values(), ids=list(CASES))
def test_errors_name_the_parameter(method: Any, wrong: str) -> None:
    parameters = inspect.signature(method).parameters.values()
    needed = [
        p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    ]
    given = {p.name: VALUES[p.name] for p in needed if p.name in VALUES} | {wrong: object()}
    if any(p.name not in given for p in needed):
        pytest.fail(f"a value is missing for {[p.name for p in needed if p.name not in given]}")
    with pytest.raises(InvalidArgumentError, match=rf"^{wrong} "):
        method(**given)
