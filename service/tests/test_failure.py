"""Each error of the client has a status, and each code is listed."""

import re
from pathlib import Path

import pytest

from spanmq import errors
from spanmq_service.http.failure import STATUS_OF, describe, kind_of

# What no request can meet: faults of the installation, of other programs, or of the service itself.
ELSEWHERE = {
    *(
        "SpanmqError",
        "ServerError",
        "InvalidTransactionError",
        "HandlerStuckError",
        "ProcessCrashedError",
        "WorkerStartError",
        "HandlerCancelledError",
        "MessagesLostError",
    ),
    *(
        "AnswerTooLargeError",
        "ShardsChangedError",
        "UnknownTaskError",
        "TaskFailedError",
        "ResultNotStoredError",
        "WebhookFailedError",
        "DataLossError",
        "PipelineError",
        "PositionUnknownError",
    ),
}


def kinds(kind: type[errors.SpanmqError] = errors.SpanmqError) -> set[type[errors.SpanmqError]]:
    return {kind}.union(*(kinds(each) for each in kind.__subclasses__()))


def test_every_error_that_a_request_can_meet_has_its_status() -> None:
    unknown = {kind for kind in kinds() if kind_of(kind("x")) is errors.SpanmqError}
    found = {kind.__name__ for kind in unknown if not kind.__name__.startswith(("Embedded", "Pipeline"))}
    assert found - ELSEWHERE == set()


def test_each_code_is_listed_once() -> None:
    listed = [errors.code_of(kind) for kind in kinds()]
    listed += [code for kind in kinds() for code in vars(kind).get("codes", ())]
    assert "queue_not_found" in listed
    assert len(set(listed)) == len(listed)
    source = Path(errors.__file__).parent
    raised = {code for path in source.rglob("*.py") for code in re.findall(r'code="(\w+)"', path.read_text())}
    raised |= {code for _, code in errors._OF_SQLSTATE.values() if code}
    assert raised - set(listed) == set()


@pytest.mark.parametrize("kind", [kind for kind, status in STATUS_OF.items() if status >= 500])
def test_what_the_database_says_of_its_own_troubles_stays_inside(kind: type[errors.SpanmqError]) -> None:
    status, body = describe(kind("role somebody at 10.1.2.3", detail="secret", hint="grant it"))
    assert status in (500, 501, 503)
    if kind not in (errors.ExtraNotInstalledError, errors.NotSupportedByUpstreamError, errors.QueueBusyError):
        assert "10.1.2.3" not in str(body)
        assert "secret" not in str(body)
