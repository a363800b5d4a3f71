"""The actions of SQS and the shapes of their parameters, as botocore describes them."""

from functools import cache
from typing import Any, Final

from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.validate import ParamValidator

from spanmq_service.sqs.refusal import SqsError

VERSION: Final = "2012-11-05"


@cache
def model() -> ServiceModel:
    """Return the description; it is loaded once."""
    return ServiceModel(Loader().load_service_model("sqs", "service-2"), "sqs")


def actions() -> list[str]:
    """Return the names of all actions of SQS."""
    return list(model().operation_names)


def takes(action: str, name: str) -> bool:
    """Return whether an action has a parameter of that name."""
    described = model().operation_model(action).input_shape
    return described is not None and name in described.members


def check(action: str, values: dict[str, Any]) -> None:
    """Raise an SqsError for unknown or missing parameters, and for values of another type."""
    shape = model().operation_model(action).input_shape
    if shape is None:
        return
    report = ParamValidator().validate(values, shape)
    if report.has_errors():
        text = report.generate_report()
        code = "MissingParameter" if text.startswith("Missing required") else "InvalidParameterValue"
        # Without the values, which belong to messages.
        raise SqsError(code, text.partition(", value:")[0][:300])
