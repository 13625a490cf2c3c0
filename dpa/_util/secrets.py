"""Keeps passwords, keys and tokens in a configuration from being written down."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

HIDDEN = "***"
# As Spark hides its configuration (spark.redaction.regex), but `token` only as the last word of a name, because
# `initial_tokens` and `tokenizer` are no secrets.
_SECRET_NAME = re.compile(
    r"secret|passw(or)?d|passphrase|credential|(access|api|private|account)[._-]?key|(^|[._-])token$", re.IGNORECASE
)
_SECRET_IN_TEXT = re.compile(r"(?i)(://[^/\s:@]+:)[^/\s@]+(?=@)|((?:password|secret|token)=)[^&;\s]+")


def without_secrets(value: Any, name: str = "") -> Any:
    """A configuration with what looks like a password, key or token by its name, or inside a URL, replaced."""
    if value and _SECRET_NAME.search(name):
        return HIDDEN
    if isinstance(value, Mapping):
        return {key: without_secrets(item, str(key)) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_secrets(item, name) for item in value]
    if isinstance(value, str):
        return _SECRET_IN_TEXT.sub(lambda found: (found.group(1) or found.group(2)) + HIDDEN, value)
    return value


def as_yaml(config: Mapping[str, Any], width: int = 80) -> str:
    """A configuration as YAML that may be shown to others, its keys in their own order, in lines of `width`
    characters."""
    return yaml.dump(without_secrets(config), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=width)


class _Dumper(yaml.SafeDumper):
    """Writes bytes, dates and times of inline records such that they are read back as they are; what YAML has no form
    for, and only a job made in Python can hold, as text."""


_Dumper.add_multi_representer(object, lambda dumper, value: dumper.represent_str(str(value)))
