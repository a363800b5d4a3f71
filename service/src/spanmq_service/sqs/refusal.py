"""Errors of SQS: SQS's own names, in the form of either protocol."""

from typing import Final

# The names in the older protocol, where they differ.
QUERY_CODES: Final = {
    "QueueDoesNotExist": "AWS.SimpleQueueService.NonExistentQueue",
    "QueueNameExists": "QueueAlreadyExists",
}
# The names in the newer protocol, where they differ.
JSON_CODES: Final = {
    "InvalidParameterValue": "InvalidParameterValueException",
    "MissingParameter": "MissingRequiredParameterException",
}
PREFIXED: Final = (
    *("EmptyBatchRequest", "TooManyEntriesInBatchRequest", "BatchEntryIdsNotDistinct", "BatchRequestTooLong"),
    *("InvalidBatchEntryId", "MessageNotInflight", "UnsupportedOperation", "PurgeQueueInProgress"),
)


class SqsError(Exception):
    """An error; `code` is its name in SQS, `is_sender` says whether the request caused it."""

    def __init__(self, code: str, message: str, *, status: int = 400, is_sender: bool = True) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status
        self.is_sender = is_sender

    @property
    def query_code(self) -> str:
        """Return the name in the older protocol."""
        if self.code in PREFIXED:
            return f"AWS.SimpleQueueService.{self.code}"
        return QUERY_CODES.get(self.code, self.code)

    @property
    def json_code(self) -> str:
        """Return the name in the body of the newer protocol; its header has that of the older one."""
        return JSON_CODES.get(self.code, self.code)

    @property
    def side(self) -> str:
        """Return whether the sender or the receiver caused it, in the words of the protocol."""
        return "Sender" if self.is_sender else "Receiver"


def no_queue() -> SqsError:
    """Return the error for a queue that does not exist."""
    return SqsError("QueueDoesNotExist", "The specified queue does not exist.")


def bad_value(message: str) -> SqsError:
    """Return the error for an invalid parameter."""
    return SqsError("InvalidParameterValue", message)


def bad_parameter(name: str, value: object, why: str) -> SqsError:
    """Return the error for an invalid value of a parameter, which it shows."""
    return bad_value(f"Value {str(value)[:200]} for parameter {name} is invalid. Reason: {why}")


def bad_attribute(name: str, why: str) -> SqsError:
    """Return the error for an invalid value of an attribute."""
    return SqsError("InvalidAttributeValue", f"Invalid value for the parameter {name}. Reason: {why}.")


def no_parameter(message: str) -> SqsError:
    """Return the error for a parameter that the request lacks."""
    return SqsError("MissingParameter", message)


def unsupported(what: str) -> SqsError:
    """Return the error for a part of SQS that the service does not support."""
    return SqsError("UnsupportedOperation", f"{what} is not supported here.")
