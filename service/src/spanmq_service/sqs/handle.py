"""Receipt handles: receipts, which in a FIFO queue say until when the visibility timeout is."""

import time

from spanmq.errors import InvalidArgumentError
from spanmq.model import Message, folded
from spanmq_service import receipt
from spanmq_service.receipt import Receipt
from spanmq_service.sqs.queue import QueueView
from spanmq_service.sqs.refusal import SqsError


def handle_of(message: Message) -> str:
    """Return the handle of a message that was received."""
    handle = receipt.write(message.queue, message.message_id, message.lease_id or 0)
    if message.queue.endswith(".fifo"):
        handle += f".{int(message.leased_until.timestamp() * 1000):x}"
    return handle


def read_handle(queue: QueueView, handle: str) -> Receipt:
    """Return the receipt of a handle; raises an SqsError for a handle that is not one of this queue."""
    try:
        held = receipt.read(handle.partition(".")[0] if queue.is_fifo else handle)
    except InvalidArgumentError as error:
        raise _refused(handle) from error
    if folded(held.queue) != folded(queue.name):
        raise _refused(handle)
    return held


def may_have_expired(handle: str) -> bool:
    """Return whether the visibility timeout of a FIFO queue's handle is over, unless it was changed later."""
    try:
        return int(handle.partition(".")[2], 16) <= time.time() * 1000
    except ValueError:
        return True


def _refused(handle: str) -> SqsError:
    return SqsError(
        "ReceiptHandleIsInvalid", f'The input receipt handle "{handle[:200]}" is not a valid receipt handle.'
    )
