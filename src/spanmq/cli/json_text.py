"""JSON that is validated but passed on unchanged: Python's floats would change its numbers."""

import json
import re
from typing import Any, Final

_SPACE: Final = re.compile(r"[ \t\n\r]*")


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


_decoder: Final = json.JSONDecoder(parse_constant=_refuse_constant)


def json_of(text: str) -> Any:
    """Read JSON; raises ValueError for NaN and its kin too."""
    return _decoder.decode(text)


def members_of(text: str) -> dict[str, str]:
    """Return the text of each member of a JSON object; raises ValueError for anything else."""
    members: dict[str, str] = {}
    position = _expect(text, 0, "{")
    if text[position : position + 1] == "}":
        _expect_end(text, position + 1)
        return members
    while True:
        name, end = _decoder.raw_decode(text, position)
        if not isinstance(name, str):
            raise ValueError("a member's name must be a string")
        position = _expect(text, end, ":")
        _, end = _decoder.raw_decode(text, position)
        members[name] = text[position:end]
        position = _space(text, end)
        if text[position : position + 1] == "}":
            _expect_end(text, position + 1)
            return members
        position = _expect(text, position, ",")


def _expect(text: str, position: int, character: str) -> int:
    position = _space(text, position)
    if text[position : position + 1] != character:
        raise ValueError(f"expecting {character!r} at character {position + 1}")
    return _space(text, position + 1)


def _expect_end(text: str, position: int) -> None:
    if _space(text, position) != len(text):
        raise ValueError(f"expecting the end at character {position + 1}")


def _space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position
