"""SQS, through `boto3`, ten messages a call; credentials are found as AWS's tools find them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from spanmq.errors import ExtraNotInstalledError, InvalidArgumentError, PipelineError
from spanmq_spark.brokers.outgoing import Outgoing

# SQS takes no more: messages a call, bytes a call, attributes a message.
BATCH: Final = 10
BATCH_BYTES: Final = 240_000
ATTRIBUTES: Final = 10
# How often the refused entries of a call are sent again.
ATTEMPTS: Final = 5
_NAME: Final = re.compile(r"(?!(?i:aws|amazon)\.)(?!\.)(?!.*\.\.)(?!.*\.$)[\w.-]{1,256}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class SqsBroker:
    """A queue by its url. One whose name ends in .fifo keeps groups in order and drops duplicates."""

    url: str

    def describe(self) -> str:
        """Name the target."""
        return f"sqs {self.url}"

    def check(self) -> None:
        """Raise PipelineError unless the queue exists and is accessible."""
        self._call(self._client().get_queue_attributes, AttributeNames=["QueueArn"])

    def publish(self, messages: Sequence[Outgoing]) -> None:
        """Send these in order, and return when SQS has confirmed each of them."""
        client = self._client()
        for batch in batches(messages):
            entries = [self._entry(number, message) for number, message in enumerate(batch)]
            for _ in range(ATTEMPTS):
                try:
                    done = self._call(client.send_message_batch, Entries=entries)
                except PipelineError as error:
                    # Only a batch of one message can be: batches() cuts the others.
                    if "BatchRequestTooLong" in str(error):
                        raise batch[0].refusal(str(error)) from error
                    raise
                failed = {each["Id"]: each for each in done.get("Failed", ())}
                entries = [each for each in entries if each["Id"] in failed]
                if not entries or any(each["SenderFault"] for each in failed.values()):
                    break
            if entries:
                refusal = failed[entries[0]["Id"]]
                message = batch[int(entries[0]["Id"])]
                raise message.refusal(f"{self.describe()}: {refusal.get('Message') or refusal['Code']}")

    def _entry(self, number: int, message: Outgoing) -> dict[str, Any]:
        labels = message.labels()
        if len(labels) > ATTRIBUTES:
            raise message.refusal(f"it has {len(labels)} headers, and SQS takes {ATTRIBUTES} attributes")
        for name in labels:
            if not _NAME.fullmatch(name):
                raise message.refusal(f"SQS takes no attribute with the name {name[:200]!r}")
        attributes = {
            name: {"DataType": "String", "StringValue": value} for name, value in labels.items() if value
        }
        fifo: dict[str, str] = {}
        if self.url.endswith(".fifo"):
            # A message without a group is in order with nothing.
            fifo = {"MessageGroupId": message.group or message.mark, "MessageDeduplicationId": message.mark}
        return {
            "Id": str(number),
            "MessageBody": message.payload.decode(),
            "MessageAttributes": attributes,
            **fifo,
        }

    def _client(self) -> Any:
        try:
            import boto3
        except ImportError as error:
            raise ExtraNotInstalledError(
                "boto3 is not installed; executors need it too", extra="sqs"
            ) from error
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidArgumentError(f"an SQS queue is named by its url, not {self.url!r}")
        # sqs.REGION.amazonaws.com; another host (a stand-in for SQS) needs none.
        labels = parts.hostname.split(".")
        region = labels[1] if labels[0] == "sqs" and len(labels) > 2 else None
        return boto3.client(
            "sqs", endpoint_url=f"{parts.scheme}://{parts.netloc}", region_name=region or "us-east-1"
        )

    def _call(self, function: Any, **arguments: Any) -> Any:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return function(QueueUrl=self.url, **arguments)
        except (BotoCoreError, ClientError) as error:
            raise PipelineError(f"{self.describe()}: {error}") from error


def batches(messages: Sequence[Outgoing]) -> list[list[Outgoing]]:
    """Cut into batches that SQS takes."""
    found: list[list[Outgoing]] = [[]]
    size = 0
    for message in messages:
        more = len(message.payload) + len(message.headers or "") + 200
        if len(found[-1]) == BATCH or (found[-1] and size + more > BATCH_BYTES):
            found.append([])
            size = 0
        found[-1].append(message)
        size += more
    return found if found[0] else []
