"""JSON Schemas of queues: set, shown, and checked whichever way the client sends."""

from collections.abc import Callable
from typing import Any

import pytest

from spanmq.client import AsyncClient
from spanmq.codec.encryption import Encryption
from spanmq.errors import InvalidArgumentError, InvalidBodyError, QueueNotFoundError
from spanmq.model import QueueSchema

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["order"],
    "properties": {"order": {"type": "integer"}},
}
NONE = QueueSchema(None, is_checked=False)

pytestmark = pytest.mark.reused


async def test_schema_is_shown_until_it_is_taken_away(client: AsyncClient) -> None:
    await client.queues.create("orders")
    assert await client.queues.schema("orders") == NONE
    await client.queues.set_schema("orders", SCHEMA)
    assert await client.queues.schema("orders") == QueueSchema(SCHEMA, is_checked=False)
    await client.send("orders", "anything")
    await client.queues.set_schema("orders", True, checked=True)
    assert await client.queues.schema("orders") == QueueSchema(True, is_checked=True)
    await client.queues.set_schema("orders", None)
    assert await client.queues.schema("orders") == NONE
    with pytest.raises(QueueNotFoundError):
        await client.queues.schema("none")


async def test_body_that_does_not_fit_is_a_typed_error_and_nothing_is_sent(
    client: AsyncClient, database: str, copied: Callable[[], tuple[int, int]]
) -> None:
    await client.queues.create("orders")
    await client.queues.set_schema("orders", SCHEMA, checked=True)
    fits = {"order": 17}
    for send in (
        lambda: client.send("orders", {}),
        lambda: client.send("orders", {}, priority=5, dedup_id="a"),
        lambda: client.send_batch("orders", [fits, {}]),
        lambda: client.send_batch("orders", [*[fits] * 3000, {}]),
    ):
        with pytest.raises(InvalidBodyError, match=r"schema of queue orders: \$\.order is missing") as raised:
            await send()
        assert (raised.value.code, raised.value.queue) == ("schema_mismatch", "orders")
    assert copied() == (1, 3001)
    assert (await client.queues.metrics("orders")).length == 0
    assert len(await client.send_batch("orders", [fits] * 3000)) == 3000
    # A sealed body is checked as it is stored.
    async with AsyncClient(database, encryption=Encryption({"key": b"k" * 32})) as sealing:
        with pytest.raises(InvalidBodyError, match="order is missing"):
            await sealing.send("orders", fits)


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        ({"type": "objekt"}, r"not valid at \$\.type"),
        ({"properties": {"a": {"pattern": "x"}}}, r"not valid at \$\.properties\.a\.pattern"),
        ({"const": object()}, "a schema must be JSON"),
        ("object", r"not valid at \$ must be"),
    ],
)
async def test_bad_schema_is_refused_with_its_place(client: AsyncClient, schema: Any, fault: str) -> None:
    await client.queues.create("orders")
    with pytest.raises(InvalidArgumentError, match=fault):
        await client.queues.set_schema("orders", schema, checked=True)
    with pytest.raises(InvalidArgumentError, match="checked must be True or False"):
        await client.queues.set_schema("orders", SCHEMA, checked=None)  # type: ignore[arg-type]
    assert await client.queues.schema("orders") == NONE
