"""Receipts: one text for each, and nothing else is one."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanmq.errors import InvalidArgumentError
from spanmq_service import receipt

IDS = st.integers(0, 2**63 - 1)
GOOD = receipt.write("orders", 1, 2)


@given(st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=47), IDS, IDS)
def test_receipt_says_what_was_written(queue: str, message_id: int, lease_id: int) -> None:
    text = receipt.write(queue, message_id, lease_id)
    found = receipt.read(text)
    assert (found.queue, found.message_id, found.lease_id) == (queue, message_id, lease_id)
    assert text.replace("-", "").replace("_", "").isalnum()


@given(st.text(max_size=60))
def test_other_texts_are_none_or_canonical(text: str) -> None:
    try:
        found = receipt.read(text)
    except InvalidArgumentError:
        return
    assert receipt.write(found.queue, found.message_id, found.lease_id) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A",
        "AAAA",
        f"{GOOD}=",
        f" {GOOD}",
        f"{GOOD}\n",
        f"{GOOD[:5]}\n{GOOD[5:]}",
        GOOD[:-1],
        "é" * 20,
        "====",
        # The same bytes in the other alphabet; another version; no queue; a queue that is no text.
        base64.b64encode(b"\x01" + b"\xff" * 16 + b"orders").decode(),
        base64.urlsafe_b64encode(b"\x02" + b"\0" * 16 + b"orders").decode().rstrip("="),
        base64.urlsafe_b64encode(b"\x01" + b"\0" * 16).decode().rstrip("="),
        base64.urlsafe_b64encode(b"\x01" + b"\0" * 16 + b"\xff\xff\xff").decode().rstrip("="),
    ],
)
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="not a receipt"):
        receipt.read(text)
