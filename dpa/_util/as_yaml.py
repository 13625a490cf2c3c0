"""Configurations as YAML that may be shown."""

from collections.abc import Mapping
from typing import Any

import yaml

from dpa._secrets import without_secrets


def as_yaml(config: Mapping[str, Any], width: int = 80) -> str:
    """A configuration without its secrets, in its own order of keys."""
    return yaml.dump(without_secrets(config), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=width)


class _Dumper(yaml.SafeDumper):
    """Keeps bytes, dates and times of inline records readable as such. Objects that only a job made in Python can hold,
    and YAML cannot, become text."""


_Dumper.add_multi_representer(object, lambda dumper, value: dumper.represent_str(str(value)))
