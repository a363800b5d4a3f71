"""A boto3 client of the service that tests share, with a key, and names of queues of a test's own."""

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
    with pytest.raises(ClientError) as raised:
        call(**values)
    return str(raised.value.response["Error"]["Code"])


def arn_of(sqs: Any, url: str) -> str:
    shown = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    return str(shown["Attributes"]["QueueArn"])


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
