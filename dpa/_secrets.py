"""Keeps passwords, keys and tokens out of whatever is written or shown (docs/security.md).

There are two ways to know one: by the name or the URI in which it stands, and, anywhere in a text, by its value, once
`learn` has seen it in a configuration or in the environment.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote

HIDDEN = "***"

# As Spark hides its configuration (spark.redaction.regex), but `token` only as the last word of a name, because
# `initial_tokens` and `tokenizer` are no secrets.
_WORDS = r"secret|passw(?:or)?d|passphrase|credential|authorization|(?:access|api|private|account|sas)[._-]?key"
# `PWD` is a shell's working directory.
_SECRET_NAME = re.compile(rf"(?i:{_WORDS}|(?:^|[._-])token$|[._-]pwd$)|^pwd$|[a-z]Token$")
_NAMED = rf"[\w.-]*(?:{_WORDS})[\w.-]*|(?:[\w.-]*[._-])?(?:token|pwd|signature|sig)"
_IN_TEXT = re.compile(
    r"(?im)(?P<before>"
    r"://[^/\s:@]*:(?=[^\s@]+@)"  # a URI's user and password
    r"|jdbc:oracle:\w+:[^\s/@]+/(?=[^\s@]+@)"
    rf"|\b(?:{_NAMED})=(?!=)"  # an option of a URI or a command
    rf"|[\"'](?:{_NAMED})[\"']: ?(?=[\"'])"  # a mapping that was printed
    rf"|^\s*(?:{_NAMED}): (?=\S)"  # a line of YAML
    r")(?P<secret>(?<=:)(?!\d+/)[^\s@]+(?=@)|(?<=/)[^\s@]+(?=@)|(?<=[=:\s])(?:\"[^\"]*\"|'[^']*'|[^&;,\s)\"'}]+)"
    r"|(?<=: )\S.*$)"
)
_IN_URI = re.compile(rf"(?i)[?&;](?:{_NAMED})=([^&;]+)")

_LONG = 8
"""Characters from which on a known secret is hidden inside of other words too."""

_SHORTEST = 6
"""Characters of a secret that is hidden by its value: a shorter one would hide too much else."""

_NONE = frozenset({"disabled", "enabled", "default", "required", "optional", "password", "secret", HIDDEN})
"""What options with such names may say that is no secret."""


class _Known:
    """What is known by its value in this process, and the expression that finds it."""

    def __init__(self) -> None:
        self.secrets: set[str] = set()
        self.pattern = re.compile(r"(?!)")


_KNOWN = _Known()


def learn(value: Any, name: str = "") -> None:
    """Note what looks like a secret in a configuration or an environment: `hidden` hides it in this process."""
    know(_found(value, name))


def know(secrets: Iterable[str]) -> None:
    """Note secrets that another process has learned."""
    new = {secret for secret in secrets if len(secret) >= _SHORTEST} - _KNOWN.secrets - _NONE
    if new:
        _KNOWN.secrets |= new
        longest_first = sorted(_KNOWN.secrets, key=len, reverse=True)
        _KNOWN.pattern = re.compile("|".join(map(_anywhere, longest_first)))


def known() -> tuple[str, ...]:
    """The secrets that this process knows, for another one to know."""
    return tuple(_KNOWN.secrets)


def hidden(text: str) -> str:
    """A text without the secrets that are known, and without what looks like one by what stands before it."""
    return _IN_TEXT.sub(lambda found: found["before"] + HIDDEN, _KNOWN.pattern.sub(HIDDEN, text))


def without_secrets(value: Any, name: str = "") -> Any:
    """A configuration with what is a password, key or token, by its name or as `hidden` knows it, replaced."""
    if value and _SECRET_NAME.search(name):
        return HIDDEN
    if isinstance(value, Mapping):
        return {key: without_secrets(item, str(key)) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_secrets(item, name) for item in value]
    return hidden(value) if isinstance(value, str) else value


def has_secret(name: str, value: str) -> bool:
    """Whether an option is not to be shown to others."""
    return bool(without_secrets(value, name) != value)


def _found(value: Any, name: str) -> Iterator[str]:
    """The secrets of a configuration, in each form in which a text may have them."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _found(item, name if _SECRET_NAME.search(name) else str(key))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _found(item, name)
    elif _SECRET_NAME.search(name):
        if isinstance(value, (str, int, float)) and not isinstance(value, bool):
            yield from _forms(str(value))
    elif isinstance(value, str):
        for secret in [found["secret"] for found in _IN_TEXT.finditer(value)] + _IN_URI.findall(value):
            yield from _forms(secret.strip("\"'"))


def _forms(secret: str) -> Iterator[str]:
    yield from (secret, secret.strip(), unquote(secret), quote(secret, safe=""), json.dumps(secret)[1:-1])
    yield from (line for line in secret.splitlines() if len(line) >= _LONG)


def _anywhere(secret: str) -> str:
    """The expression that finds a secret; a short one only as a word of its own."""
    return re.escape(secret) if len(secret) >= _LONG else rf"(?<!\w){re.escape(secret)}(?!\w)"
