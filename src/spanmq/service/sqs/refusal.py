"""What SQS programs are told when something is refused: SQS's own names, in the form of either protocol."""

from __future__ import annotations

from typing import Final

# The names that clients of the older protocol know, where they differ.
QUERY_CODES: Final = {
    "QueueDoesNotExist": "AWS.SimpleQueueService.NonExistentQueue",
    "QueueNameExists": "QueueAlreadyExists",
    "EmptyBatchRequest": "AWS.SimpleQueueService.EmptyBatchRequest",
    "TooManyEntriesInBatchRequest": "AWS.SimpleQueueService.TooManyEntriesInBatchRequest",
    "BatchEntryIdsNotDistinct": "AWS.SimpleQueueService.BatchEntryIdsNotDistinct",
    "BatchRequestTooLong": "AWS.SimpleQueueService.BatchRequestTooLong",
    "InvalidBatchEntryId": "AWS.SimpleQueueService.InvalidBatchEntryId",
    "MessageNotInflight": "AWS.SimpleQueueService.MessageNotInflight",
    "UnsupportedOperation": "AWS.SimpleQueueService.UnsupportedOperation",
    "PurgeQueueInProgress": "AWS.SimpleQueueService.PurgeQueueInProgress",
}


class SqsError(Exception):
    """A refusal; `code` is a name of SQS's, `is_sender` says whose fault it is."""

    def __init__(self, code: str, message: str, *, status: int = 400, is_sender: bool = True) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status
        self.is_sender = is_sender

    @property
    def query_code(self) -> str:
        """Give the name in the older protocol."""
        return QUERY_CODES.get(self.code, self.code)

    @property
    def side(self) -> str:
        """Give whose fault it is in the words of the protocol."""
        return "Sender" if self.is_sender else "Receiver"


def no_queue() -> SqsError:
    """Say that there is no such queue."""
    return SqsError("QueueDoesNotExist", "The specified queue does not exist.")


def bad_value(message: str) -> SqsError:
    """Say that a parameter means nothing."""
    return SqsError("InvalidParameterValue", message)


def bad_attribute(name: str, why: str) -> SqsError:
    """Say that an attribute can't have this value."""
    return SqsError("InvalidAttributeValue", f"Invalid value for the parameter {name}: {why}.")


def unsupported(what: str) -> SqsError:
    """Say that this is SQS's and not ours."""
    return SqsError("UnsupportedOperation", f"{what} is not supported here.")
