"""Clients of SQS, each in a process of its own: boto3 of today, the last one of the older protocol, and AWS's commands.

What is not installed here is fetched by pip once, into a folder beside the packages of this environment.
"""

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from service.tests.running import Running
from tests.patience import WAIT_SECONDS

# boto3 1.26 sends forms and reads XML; the query protocol went with 1.28.
CLIENTS = {"boto3-1.26": ["boto3==1.26.165"], "awscli": ["awscli>=1.38"]}
PROGRAM = """
import json, os, boto3
from botocore.exceptions import ClientError

sqs = boto3.client("sqs", endpoint_url=os.environ["ADDRESS"], region_name="eu-central-1")
stem = os.environ["STEM"]
said = []

def bodies(url, **values):
    messages = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, **values).get("Messages", [])
    return messages, [message["Body"] for message in messages]

def refused(call, **values):
    try:
        call(**values)
    except ClientError as error:
        return error.response["Error"]["Code"].rpartition(".")[2]

url = sqs.create_queue(QueueName=stem, Attributes={"VisibilityTimeout": "60"})["QueueUrl"]
said.append(sqs.get_queue_url(QueueName=stem)["QueueUrl"] == url)
kind = {"Kind": {"DataType": "String", "StringValue": "order"}, "Raw": {"DataType": "Binary", "BinaryValue": b"1"}}
sqs.send_message(QueueUrl=url, MessageBody="<first> & ü", MessageAttributes=kind)
entries = [{"Id": str(number), "MessageBody": str(number)} for number in range(3)]
said.append(sorted(sqs.send_message_batch(QueueUrl=url, Entries=entries).keys() - {"ResponseMetadata"}))
messages, texts = bodies(url, MessageAttributeNames=["All"], AttributeNames=["All"])
said.append(texts)
said.append({name: value["DataType"] for name, value in messages[0]["MessageAttributes"].items()})
said.append(messages[0]["Attributes"]["ApproximateReceiveCount"])
sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=messages[0]["ReceiptHandle"], VisibilityTimeout=0)
again, texts = bodies(url)
said.append(texts)
messages[0] = again[0]
handles = [{"Id": str(n), "ReceiptHandle": message["ReceiptHandle"]} for n, message in enumerate(messages)]
said.append([each["Id"] for each in sqs.delete_message_batch(QueueUrl=url, Entries=handles)["Successful"]])
said.append(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"])["Attributes"])
said.append(refused(sqs.send_message, QueueUrl=url, MessageBody="x", DelaySeconds=901))
said.append(refused(sqs.delete_message, QueueUrl=url, ReceiptHandle="x"))
fifo = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
line = sqs.create_queue(QueueName=stem + ".fifo", Attributes=fifo)["QueueUrl"]
for text in ("a1", "b1", "a2", "a1"):
    sqs.send_message(QueueUrl=line, MessageBody=text, MessageGroupId=text[0])
messages, texts = bodies(line)
said.append(texts)
for message in messages:
    sqs.delete_message(QueueUrl=line, ReceiptHandle=message["ReceiptHandle"])
sqs.tag_queue(QueueUrl=line, Tags={"team": "shop"})
said.append(sqs.list_queue_tags(QueueUrl=line)["Tags"])
sqs.purge_queue(QueueUrl=line)
for each in (url, line):
    sqs.delete_queue(QueueUrl=each)
said.append(refused(sqs.get_queue_url, QueueName=stem))
print(json.dumps(said))
"""
SAID = [
    True,
    ["Successful"],
    ["<first> & ü", "0", "1", "2"],
    {"Kind": "String", "Raw": "Binary"},
    "1",
    ["<first> & ü"],
    ["0", "1", "2", "3"],
    {"ApproximateNumberOfMessages": "0"},
    "InvalidParameterValue",
    "ReceiptHandleIsInvalid",
    ["a1", "a2", "b1"],
    {"team": "shop"},
]
MISSING = {"QueueDoesNotExist", "NonExistentQueue"}

Run = Callable[..., str]


def packages(name: str) -> Path:
    """Return a folder with a client and what it needs; skips the test where no package index can be reached."""
    folder = Path(sysconfig.get_path("data")) / "clients" / name
    if not (folder / "complete").exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        done = subprocess.run(
            [*command, "--retries", "1", "--target", str(folder), *CLIENTS[name]],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            pytest.skip(f"{name} can't be installed: {done.stderr[-500:]}")
        (folder / "complete").touch()
    return folder


@pytest.fixture
def run(keyed: Running, key: dict[str, str], tmp_path: Path, request: pytest.FixtureRequest) -> Run:
    """Run a Python program with the packages of a folder, and return what it prints."""

    def run(*arguments: str, folder: Path | None = None) -> str:
        own = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        environment = {
            **own,
            "ADDRESS": keyed.address,
            "AWS_ACCESS_KEY_ID": key["access_key_id"],
            "AWS_SECRET_ACCESS_KEY": key["secret_access_key"],
            "AWS_EC2_METADATA_DISABLED": "true",
            "HOME": str(tmp_path),
            "NO_PROXY": "*",
            "PYTHONPATH": "" if folder is None else str(folder),
            "STEM": f"clients-{abs(hash(request.node.nodeid)) % 10**12}",
        }
        done = subprocess.run(
            [sys.executable, "-W", "ignore", *arguments],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.mark.parametrize("name", ["installed", "boto3-1.26"])
def test_program_of_boto3_gets_the_same_answers_by_either_protocol(run: Run, name: str) -> None:
    folder = None if name == "installed" else packages(name)
    if folder is not None:
        assert run("-c", "import boto3; print(boto3.__version__)", folder=folder) == "1.26.165\n"
    *said, missing = json.loads(run("-c", PROGRAM, folder=folder))
    assert said == SAID
    assert missing in MISSING


def test_commands_of_aws_send_receive_and_delete(run: Run, keyed: Running) -> None:
    folder = packages("awscli")

    def aws(*words: str) -> Any:
        options = ("--endpoint-url", keyed.address, "--region", "eu-central-1", "--output", "json")
        printed = run("-m", "awscli", "sqs", *words, *options, folder=folder)
        return json.loads(printed) if printed.strip() else None

    url = aws("create-queue", "--queue-name", "by-commands", "--attributes", "VisibilityTimeout=60")[
        "QueueUrl"
    ]
    assert url in aws("list-queues", "--queue-name-prefix", "by-")["QueueUrls"]
    sent = aws("send-message", "--queue-url", url, "--message-body", "from a shell", "--delay-seconds", "0")
    [message] = aws("receive-message", "--queue-url", url, "--attribute-names", "All")["Messages"]
    assert (message["MessageId"], message["Body"]) == (sent["MessageId"], "from a shell")
    assert aws("receive-message", "--queue-url", url) is None
    aws("delete-message", "--queue-url", url, "--receipt-handle", message["ReceiptHandle"])
    shown = aws("get-queue-attributes", "--queue-url", url, "--attribute-names", "All")["Attributes"]
    assert (shown["VisibilityTimeout"], shown["ApproximateNumberOfMessages"]) == ("60", "0")
    aws("delete-queue", "--queue-url", url)
