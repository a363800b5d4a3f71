"""The actions of SQS and the shapes of what they take, as botocore describes them."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.validate import ParamValidator

from spanmq.service.sqs.refusal import SqsError

VERSION: Final = "2012-11-05"


@cache
def model() -> ServiceModel:
    """Load the description, once."""
    return ServiceModel(Loader().load_service_model("sqs", "service-2"), "sqs")


def actions() -> list[str]:
    """Name all actions that SQS has."""
    return list(model().operation_names)


def takes(action: str, name: str) -> bool:
    """Return whether an action has a parameter of that name."""
    described = model().operation_model(action).input_shape
    return described is not None and name in described.members


def check(action: str, values: dict[str, Any]) -> None:
    """Raise an SqsError unless an action takes these: none unknown or missing, each of its type."""
    shape = model().operation_model(action).input_shape
    if shape is None:
        return
    report = ParamValidator().validate(values, shape)
    if report.has_errors():
        text = report.generate_report()
        code = "MissingParameter" if text.startswith("Missing required") else "InvalidParameterValue"
        # Without the values, which are somebody's messages.
        raise SqsError(code, text.partition(", value:")[0][:300])
