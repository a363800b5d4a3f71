"""A queue as SQS sees it: its attributes, their defaults and valid values, and its names."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from spanmq_service.sqs.refusal import SqsError, bad_attribute, bad_value, unsupported
from spanmq_service.sqs.store import SqsQueue

ACCOUNT: Final = "000000000000"
FIFO_SUFFIX: Final = ".fifo"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,80}(\.fifo)?")
_ARN: Final = re.compile(rf"arn:aws:sqs:[\w-]*:{ACCOUNT}:(?P<queue>[A-Za-z0-9_-]+(\.fifo)?)")
# The longest name of a queue in SQS, and in the database.
SQS_NAME_MAX: Final = 80
NAME_MAX: Final = 47
# The attribute that has the name in SQS of a queue whose name is too long for the database.
LONG_NAME: Final = "QueueName"
# For each numeric attribute: minimum, maximum, default. From the SQS API reference, SetQueueAttributes.
NUMBERS: Final = {
    "VisibilityTimeout": (0, 43_200, 30),
    "DelaySeconds": (0, 900, 0),
    "MaximumMessageSize": (1_024, 1_048_576, 1_048_576),
    "MessageRetentionPeriod": (60, 1_209_600, 345_600),
    "ReceiveMessageWaitTimeSeconds": (0, 20, 0),
}
BOOLEAN: Final = ("false", "true")
CHOICES: Final = {
    "ContentBasedDeduplication": BOOLEAN,
    "DeduplicationScope": ("queue", "messageGroup"),
    "FifoThroughputLimit": ("perQueue", "perMessageGroupId"),
}
POLICIES: Final = ("RedrivePolicy", "RedriveAllowPolicy")
# Stored and shown without effect, because templates set it.
SSE: Final = "SqsManagedSseEnabled"
COUNTED: Final = {
    "ApproximateNumberOfMessages": "visible",
    "ApproximateNumberOfMessagesNotVisible": "in_flight",
    "ApproximateNumberOfMessagesDelayed": "delayed",
}
TOLD: Final = ("QueueArn", "CreatedTimestamp", "LastModifiedTimestamp")
RECEIVES_MAX: Final = 1_000
SOURCES_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class RedrivePolicy:
    """The dead-letter queue of messages that were received too often."""

    queue: str
    receives_max: int


@dataclass(frozen=True, slots=True)
class QueueView:
    """A queue with its attributes."""

    known: SqsQueue

    @property
    def name(self) -> str:
        """Return the name in the database."""
        return self.known.queue

    @property
    def sqs_name(self) -> str:
        """Return the name in SQS, which may be longer."""
        long_name = self.known.attributes.get(LONG_NAME)
        # Managers of a queue may write any attribute: no queue may take another queue's name.
        if isinstance(long_name, str) and queue_of_name(long_name) == self.name:
            return long_name
        return self.name

    @property
    def is_fifo(self) -> bool:
        """Return whether messages are delivered in order."""
        return self.name.endswith(FIFO_SUFFIX)

    def number(self, name: str) -> int:
        """Return a numeric attribute, or its default if SQL has set an invalid value."""
        least, most, default = NUMBERS[name]
        text = str(self.known.attributes.get(name, default))
        return int(text) if re.fullmatch(r"[0-9]{1,9}", text) and least <= int(text) <= most else default

    def choice(self, name: str) -> str:
        """Return an attribute that has fixed values, or its default if SQL has set an invalid one."""
        text = self.known.attributes.get(name)
        return text if text in CHOICES[name] else CHOICES[name][0]

    @property
    def redrive(self) -> RedrivePolicy | None:
        """Return the RedrivePolicy; None if it is not valid."""
        text = self.known.attributes.get("RedrivePolicy")
        try:
            return None if text is None else read_redrive(text)
        except SqsError:
            return None

    def settable(self) -> dict[str, str]:
        """Return the attributes that can be set, including those with default values."""
        shown = {name: str(self.number(name)) for name in NUMBERS}
        if self.is_fifo:
            shown |= {name: self.choice(name) for name in CHOICES}
            shown["FifoQueue"] = "true"
        kept = {name: text for name in POLICIES if (text := self.known.attributes.get(name))}
        return {**shown, **kept, SSE: self.known.attributes.get(SSE, "false")}


def check_name(name: str) -> None:
    """Raise an SqsError for an invalid name of a queue."""
    if not _NAME.fullmatch(name) or len(name) > SQS_NAME_MAX:
        raise bad_value(
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length."
        )


def queue_of_name(name: str) -> str:
    """Return the queue for a name in SQS: the same name, or for a long one its beginning and a hash.

    spanmq_core.sqs_queue_of() does the same in SQL.
    """
    if len(name) <= NAME_MAX:
        return name
    suffix = FIFO_SUFFIX if name.endswith(FIFO_SUFFIX) else ""
    return f"{name[:29]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}{suffix}"


def name_of_arn(arn: str) -> str:
    """Return the queue of an ARN, of any region."""
    match = _ARN.fullmatch(arn)
    if match is None:
        raise bad_value(f"{arn[:100]!r} is not an ARN of a queue of this service.")
    return match["queue"]


def arn_of(queue: str, region: str) -> str:
    """Return the ARN of a queue."""
    return f"arn:aws:sqs:{region}:{ACCOUNT}:{queue}"


def read_redrive(text: str) -> RedrivePolicy:
    """Parse a RedrivePolicy; raises an SqsError for an invalid one."""
    policy = _object("RedrivePolicy", text)
    count, target = policy.get("maxReceiveCount"), policy.get("deadLetterTargetArn")
    # A number, or a string of digits: programs send both.
    if isinstance(count, str) and re.fullmatch(r"[0-9]{1,9}", count):
        count = int(count)
    if type(count) is not int or not isinstance(target, str) or len(policy) > 2:
        raise bad_attribute("RedrivePolicy", "it must have deadLetterTargetArn and maxReceiveCount only")
    if not 1 <= count <= RECEIVES_MAX:
        raise bad_attribute("RedrivePolicy", "maxReceiveCount must be 1 to 1000")
    return RedrivePolicy(queue_of_name(name_of_arn(target)), count)


def allows_redrive(text: str | None, source: str) -> bool:
    """Return whether a RedriveAllowPolicy allows a queue, by its name in SQS, to send its dead letters."""
    if not text:
        return True
    policy = _object("RedriveAllowPolicy", text)
    if policy.get("redrivePermission") == "byQueue":
        return source in {name_of_arn(arn) for arn in policy.get("sourceQueueArns", [])}
    return bool(policy.get("redrivePermission") == "allowAll")


def check_attributes(name: str, attributes: Mapping[str, str], *, is_new: bool) -> dict[str, str | None]:
    """Return the attributes to store; raises an SqsError for unknown attributes and invalid values."""
    is_fifo = name.endswith(FIFO_SUFFIX)
    kept: dict[str, str | None] = {}
    for key, value in attributes.items():
        if key in NUMBERS:
            kept[key] = _number(key, value)
        elif key in CHOICES:
            kept[key] = _choice(key, value, is_fifo=is_fifo)
        elif key in POLICIES:
            kept[key] = _policy(key, value)
        elif key == SSE and value.lower() in BOOLEAN:
            kept[key] = value.lower()
        elif key == "FifoQueue":
            _check_kind(value.lower(), is_fifo=is_fifo, is_new=is_new)
        else:
            _check_fixed(key, value)
    if is_new and is_fifo and "FifoQueue" not in attributes:
        raise bad_value(
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length."
        )
    return kept


def _check_kind(value: str, *, is_fifo: bool, is_new: bool) -> None:
    """Raise an SqsError unless the attribute FifoQueue says what the name says."""
    if value not in BOOLEAN:
        raise bad_attribute("FifoQueue", "it must be true or false")
    if is_fifo and value == "false":
        raise bad_attribute("FifoQueue", "Modifying queue type is not supported")
    if not is_fifo and is_new and value == "true":
        raise bad_value(
            "The name of a FIFO queue can only include alphanumeric characters, hyphens, or"
            " underscores, must end with .fifo suffix and be 1 to 80 in length."
        )
    if not is_fifo:
        raise SqsError("InvalidAttributeName", "Unknown Attribute FifoQueue.")


def _number(key: str, value: str) -> str:
    least, most, _ = NUMBERS[key]
    if not re.fullmatch(r"\d{1,9}", value) or not least <= int(value) <= most:
        raise bad_attribute(key, f"it must be {least} to {most}")
    return str(int(value))


def _choice(key: str, value: str, *, is_fifo: bool) -> str:
    if not is_fifo and CHOICES[key] is BOOLEAN:
        raise SqsError("InvalidAttributeName", f"Unknown Attribute {key}.")
    if not is_fifo:
        raise SqsError(
            "InvalidAttributeName", f"You can specify the {key} only when FifoQueue is set to true."
        )
    # Python's str(True) is "True", which AWS takes, too.
    choice = value.lower() if CHOICES[key] is BOOLEAN else value
    if choice not in CHOICES[key]:
        raise bad_attribute(key, f"it must be one of {', '.join(CHOICES[key])}")
    return choice


def _check_fixed(key: str, value: str) -> None:
    """Raise an SqsError for an attribute that cannot be changed, unless its value stays the same."""
    if key in ("Policy", "KmsMasterKeyId") and not value:
        return
    if key in ("Policy", "KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds", SSE):
        raise unsupported(f"The attribute {key}")
    raise SqsError("InvalidAttributeName", f"Unknown Attribute {key[:80]}.")


def _policy(key: str, value: str) -> str | None:
    if not value:
        return None
    if key == "RedrivePolicy":
        read_redrive(value)
    else:
        _check_allowed(key, _object(key, value))
    return value


def _check_allowed(key: str, policy: dict[str, Any]) -> None:
    permission, sources = policy.get("redrivePermission"), policy.get("sourceQueueArns")
    if permission not in ("allowAll", "denyAll", "byQueue") or policy.keys() - {
        "redrivePermission",
        "sourceQueueArns",
    }:
        raise bad_attribute(
            key, "it must have a redrivePermission (allowAll, denyAll, byQueue) and sourceQueueArns"
        )
    if permission != "byQueue":
        if sources is not None:
            raise bad_attribute(key, "sourceQueueArns require byQueue")
        return
    if not isinstance(sources, list) or not 1 <= len(sources) <= SOURCES_MAX:
        raise bad_attribute(key, f"byQueue requires 1 to {SOURCES_MAX} sourceQueueArns")
    for arn in sources:
        if not isinstance(arn, str) or not _ARN.fullmatch(arn):
            raise bad_attribute(key, f"{str(arn)[:100]!r} is not an ARN of a queue of this service")


def check_together(attributes: Mapping[str, str | None]) -> None:
    """Raise an SqsError for attributes that cannot be combined."""
    is_by_group = attributes.get("FifoThroughputLimit") == "perMessageGroupId"
    if is_by_group and attributes.get("DeduplicationScope") != "messageGroup":
        raise bad_attribute(
            "FifoThroughputLimit", "perMessageGroupId requires DeduplicationScope messageGroup"
        )


def _object(name: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:  # SQL may have set any JSON
        raise bad_attribute(name, "it is not valid JSON") from error
    if not isinstance(value, dict):
        raise bad_attribute(name, "it is not a JSON object")
    return value
