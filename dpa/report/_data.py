"""A report as plain data that is safe to write and to show: in JSON's types, and without secrets.

`report.json` is `report_data(report)`; `resolved.yaml` and the page's configuration are `resolved_yaml(report)`. The
report in memory is not changed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from enum import Enum
from typing import Any

from dpa._util.secrets import as_yaml, without_secrets
from dpa.report._text import key_text
from dpa.result import Report


def report_data(report: Report) -> dict[str, Any]:
    """`report` as the content of `report.json`."""
    tree: dict[str, Any] = jsonable(report.to_dict())
    tree["config"] = without_secrets(tree["config"])
    return tree


def resolved_yaml(report: Report) -> str:
    """The resolved configuration of `report` as YAML, its keys in their own order."""
    return as_yaml(report.config, width=120)


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
