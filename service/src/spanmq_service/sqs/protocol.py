"""The actions of SQS as botocore describes them, and the older protocol: form fields in requests, XML in responses."""

import base64
import re
from functools import cache
from typing import Any, Final
from xml.etree import ElementTree

from botocore.loaders import Loader
from botocore.model import ListShape, MapShape, ServiceModel, Shape, StructureShape
from botocore.validate import ParamValidator

from spanmq_service.sqs.message import FORBIDDEN
from spanmq_service.sqs.refusal import SqsError

VERSION: Final = "2012-11-05"
NAMESPACE: Final = f"http://queue.amazonaws.com/doc/{VERSION}/"
_INDEX: Final = re.compile(r"[0-9]{1,9}")
NOT_PARAMETERS: Final = ("Action", "Version", "Timestamp", "Expires", "AWSAccessKeyId")


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


def parse(action: str, form: dict[str, str]) -> dict[str, Any]:
    """Return the values of an action from its form; raises an SqsError for an unknown field."""
    fields = {name: value for name, value in form.items() if name not in NOT_PARAMETERS}
    shape = model().operation_model(action).input_shape
    values: dict[str, Any] = {}
    if isinstance(shape, StructureShape):
        values = _structure(shape, "", fields)
    if fields:
        raise SqsError("InvalidParameterValue", f"Unknown parameter {next(iter(fields))[:80]!r}.")
    return values


def render(action: str, values: dict[str, Any], request_id: str) -> bytes:
    """Return a response as XML."""
    root = ElementTree.Element(f"{action}Response", xmlns=NAMESPACE)
    shape = model().operation_model(action).output_shape
    if isinstance(shape, StructureShape):
        _write(ElementTree.SubElement(root, f"{action}Result"), shape, values)
    ElementTree.SubElement(ElementTree.SubElement(root, "ResponseMetadata"), "RequestId").text = request_id
    return _written(root)


def render_fault(fault: SqsError, request_id: str) -> bytes:
    """Return an error as XML."""
    root = ElementTree.Element("ErrorResponse", xmlns=NAMESPACE)
    error = ElementTree.SubElement(root, "Error")
    for name, text in (("Type", fault.side), ("Code", fault.query_code), ("Message", fault.message)):
        ElementTree.SubElement(error, name).text = _holdable(text)
    ElementTree.SubElement(root, "RequestId").text = request_id
    return _written(root)


def _written(root: ElementTree.Element) -> bytes:
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    # XML parsers normalize a carriage return to a line feed unless it is escaped.
    return text.replace(b"\r", b"&#13;")


def _structure(shape: StructureShape, prefix: str, fields: dict[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, member in shape.members.items():
        value = _value(member, prefix + _field(name, member), fields)
        # A client sends an empty list under the member's own name, without a value.
        if value is None and isinstance(member, ListShape) and fields.get(prefix + name) == "":
            del fields[prefix + name]
            value = []
        if value is not None:
            values[name] = value
    return values


def _value(shape: Shape, name: str, fields: dict[str, str]) -> Any:
    if isinstance(shape, StructureShape):
        return _structure(shape, f"{name}.", fields) or None
    if isinstance(shape, ListShape):
        return [_value(shape.member, f"{name}.{number}", fields) for number in _numbers(name, fields)] or None
    if isinstance(shape, MapShape):
        key, value = ("Key", "Value") if name.endswith("Tag") else ("Name", "Value")
        return {
            _value(shape.key, f"{name}.{number}.{key}", fields): _value(
                shape.value, f"{name}.{number}.{value}", fields
            )
            for number in _numbers(name, fields)
        } or None
    text = fields.pop(name, None)
    return text if text is None else _scalar(shape, name, text)


def _scalar(shape: Shape, name: str, text: str) -> Any:
    try:
        if shape.type_name in ("integer", "long"):
            return int(text)
        if shape.type_name == "blob":
            return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise SqsError("InvalidParameterValue", f"The value of {name[:80]} is not valid.") from error
    return text


def _numbers(name: str, fields: dict[str, str]) -> list[int]:
    """Return the indexes of the elements of a list or map, in order."""
    indexes = {field[len(name) + 1 :].partition(".")[0] for field in fields if field.startswith(f"{name}.")}
    return sorted(int(number) for number in indexes if _INDEX.fullmatch(number))


def _field(name: str, shape: Shape) -> str:
    """Return the field of a member: of a list or a map, that of an element, which botocore does not name."""
    if name == "Actions":
        return "ActionName"
    if isinstance(shape, ListShape) and isinstance(shape.member, StructureShape):
        return str(shape.member.name)  # for example SendMessageBatchRequestEntry
    if isinstance(shape, ListShape | MapShape):
        return name[:1].upper() + name[1:].removesuffix("s")
    return name


def _write(parent: ElementTree.Element, shape: StructureShape, values: dict[str, Any]) -> None:
    for name, member in shape.members.items():
        if (value := values.get(name)) is None:
            continue
        field = _field(name, member)
        if isinstance(member, ListShape):
            for content in value:
                _element(parent, field, member.member, content)
        elif isinstance(member, MapShape):
            key_name = "Key" if field == "Tag" else "Name"
            for key, content in value.items():
                entry = ElementTree.SubElement(parent, field)
                _element(entry, key_name, member.key, key)
                _element(entry, "Value", member.value, content)
        else:
            _element(parent, field, member, value)


def _element(parent: ElementTree.Element, name: str, shape: Shape, value: Any) -> None:
    element = ElementTree.SubElement(parent, name)
    if isinstance(shape, StructureShape):
        _write(element, shape, value)
    elif isinstance(value, bytes):
        element.text = base64.b64encode(value).decode()
    else:
        element.text = _holdable(str(value).lower() if isinstance(value, bool) else str(value))


def _holdable(text: str) -> str:
    # Names of queues, tags and groups created in SQL may contain characters that XML cannot represent.
    return FORBIDDEN.sub("\ufffd", text)
