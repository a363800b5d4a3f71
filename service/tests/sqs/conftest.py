"""A boto3 client of the service that tests share, with a key; queues of a test's own, and what is asked of them."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from service.tests.running import Running, service
from tests.cli.program import records
from tests.patience import WAIT_SECONDS

from spanmq.model import AccessKey

Make = Callable[..., Any]
ANYBODY: Final = {"access_key_id": "ANYBODY", "secret_access_key": "none"}


def client_of(address: str, key: Mapping[str, str] | AccessKey = ANYBODY) -> Any:
    """Return a client as a program would make it; a service without tokens takes any key."""
    if isinstance(key, AccessKey):
        key = {"access_key_id": key.access_key_id, "secret_access_key": str(key.secret)}
    return boto3.client(
        "sqs",
        endpoint_url=address,
        region_name="eu-central-1",
        aws_access_key_id=key["access_key_id"],
        aws_secret_access_key=key["secret_access_key"],
        config=Config(
            retries={"max_attempts": 0}, connect_timeout=WAIT_SECONDS, read_timeout=WAIT_SECONDS, proxies={}
        ),
    )


def refused(call: Callable[..., Any], **values: Any) -> str:
    return str(error_of(call, **values)["Code"])


def error_of(call: Callable[..., Any], **values: Any) -> dict[str, Any]:
    with pytest.raises(ClientError) as raised:
        call(**values)
    return dict(raised.value.response["Error"])


def codes_of(error: dict[str, Any]) -> tuple[str, str]:
    """Return the code of an error, and that of the older protocol."""
    return error["Code"], error["QueryErrorCode"]


def attributes(sqs: Any, url: str) -> dict[str, str]:
    return dict(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"])


def arn_of(sqs: Any, url: str) -> str:
    return attributes(sqs, url)["QueueArn"]


def redrive(arn: str, count: int = 2) -> dict[str, str]:
    """Return the attribute of a queue whose messages become dead letters after so many receives."""
    return {"RedrivePolicy": json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": count})}


def bodies(sqs: Any, url: str, quantity: int = 10, **more: Any) -> list[str]:
    """Receive, and return what came."""
    received = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=quantity, **more)
    return [message["Body"] for message in received.get("Messages", [])]


@pytest.fixture(scope="session")
def keyed(service_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with service(service_database, tmp_path_factory.mktemp("sqs"), tokens=True) as started:
        yield started


@pytest.fixture(scope="session")
def key(service_database: str) -> dict[str, str]:
    """A key that may do everything."""
    [made] = records("key create", dsn=service_database)
    return dict(made)


@pytest.fixture
def sqs(keyed: Running, key: dict[str, str]) -> Any:
    return client_of(keyed.address, key)


@pytest.fixture
def make(sqs: Any, request: pytest.FixtureRequest) -> Make:
    """Make a queue of the test's own, and give its URL."""
    stem = f"t{abs(hash(request.node.nodeid)) % 10**12}"

    def made(name: str = "", *, fifo: bool = False, **attributes: str) -> str:
        if fifo:
            attributes["FifoQueue"] = "true"
        full = f"{stem}{name}{'.fifo' if fifo else ''}"
        return str(sqs.create_queue(QueueName=full, Attributes=attributes)["QueueUrl"])

    return made
