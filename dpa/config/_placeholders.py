"""`${...}` in the texts of a job file."""

from __future__ import annotations

import os
import re
import sysconfig
from typing import Any

from dpa.errors import ConfigError

_PLACEHOLDER = re.compile(r"\$\{([^}]*)\}")


def substitute(value: Any, origin: str) -> Any:
    """A document whose placeholders are replaced, at any depth; `origin` names it in errors.

    Raises:
        ConfigError: a placeholder is unknown, or its environment variable is not set.
    """
    if isinstance(value, str):
        return _PLACEHOLDER.sub(lambda match: _replacement(match.group(1), origin), value)
    if isinstance(value, dict):
        return {key: substitute(item, origin) for key, item in value.items()}
    if isinstance(value, list):
        return [substitute(item, origin) for item in value]
    return value


def _replacement(name: str, origin: str) -> str:
    if name == "python.stdlib":
        return sysconfig.get_paths()["stdlib"]
    if name.startswith("env."):
        variable = name.removeprefix("env.")
        if variable not in os.environ:
            raise ConfigError(f"{origin}: ${{{name}}}: the environment variable {variable} is not set")
        return os.environ[variable]
    raise ConfigError(f"{origin}: ${{{name}}} is unknown; use ${{python.stdlib}} or ${{env.NAME}}")
