"""Values as JSON that is safe to write and to show, in any pipe."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Set
from enum import Enum
from typing import Any

from dpa._secrets import without_secrets
from dpa.result.text import key_text

_LINE_COLUMNS = 120


def document(data: dict[str, Any]) -> str:
    """`data` as strict JSON in ASCII, without the secrets of its configuration.

    Numbers that JSON lacks (NaN, infinities) are null, enums are their values, bytes a Python literal (`b'\\xff'`).
    """
    tree: dict[str, Any] = jsonable(data)
    return _dumped({**tree, "config": without_secrets(tree["config"])})


def _dumped(value: Any, indent: str = "") -> str:
    """JSON with each value that fits on one line, and each list of numbers, on one line."""
    compact = json.dumps(value, allow_nan=False)
    if len(indent) + len(compact) <= _LINE_COLUMNS or not value or not isinstance(value, (dict, list)):
        return compact
    deeper = indent + "  "
    if isinstance(value, dict):
        items = [f"{deeper}{json.dumps(name)}: {_dumped(item, deeper)}" for name, item in value.items()]
        return "{\n" + ",\n".join(items) + f"\n{indent}}}"
    if all(isinstance(item, (int, float)) for item in value):
        return compact
    return "[\n" + ",\n".join(deeper + _dumped(item, deeper) for item in value) + f"\n{indent}]"


def jsonable(value: Any) -> Any:
    """`value` in JSON's types alone: docs/report.md, "How values are written", states the rule for each other type."""
    if isinstance(value, Enum):
        return jsonable(value.value)
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")  # lone surrogates are no Unicode text
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (bytes, bytearray, memoryview)):
        return repr(bytes(value))
    if isinstance(value, Mapping):
        return {_name(name): jsonable(item) for name, item in value.items()}
    if isinstance(value, Set):
        return sorted((jsonable(item) for item in value), key=repr)
    if isinstance(value, (list, tuple)):
        return [jsonable(item) for item in value]
    if hasattr(value, "item"):  # a numpy scalar
        return jsonable(value.item())
    return str(value)  # a path, a date, a decimal


def _name(name: Any) -> str:
    return str(jsonable(name)) if isinstance(name, str) else key_text(name)
