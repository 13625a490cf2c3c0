"""What must not be written down: values of a configuration that are passwords, keys or tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

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
