"""Configurations as YAML that may be shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from dpa._secrets import without_secrets


def as_yaml(config: Mapping[str, Any], width: int = 80) -> str:
    """A configuration without its secrets, its keys in their own order, in lines of `width` characters."""
    return yaml.dump(without_secrets(config), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=width)


class _Dumper(yaml.SafeDumper):
    """Writes bytes, dates and times of inline records such that they are read back as they are; what YAML has no form
    for, and only a job made in Python can hold, as text."""


_Dumper.add_multi_representer(object, lambda dumper, value: dumper.represent_str(str(value)))
