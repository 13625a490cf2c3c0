"""Keeps passwords, keys and tokens out of everything that is written or shown (docs/security.md).

A secret is recognised by the name or the URI around it. Once `learn` has seen it in a configuration or in the
environment, it is also recognised by its value in any text."""

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

_LONG = 8  # from this length on, a known secret is also hidden inside other words
_SHORTEST = 6  # shorter secrets are not hidden by value: that would hide too much else

_NONE = frozenset({"disabled", "enabled", "default", "required", "optional", "password", "secret", HIDDEN})
"""Harmless values of options with such names."""


class _Known:
    """The secrets that this process knows by value, and the expression that finds them."""

    def __init__(self) -> None:
        self.secrets: set[str] = set()
        self.pattern = re.compile(r"(?!)")


_KNOWN = _Known()


def learn(value: Any, name: str = "") -> None:
    """Note the secrets of a configuration or an environment, for `hidden`."""
    know(_found(value, name))


def know(secrets: Iterable[str]) -> None:
    new = {secret for secret in secrets if len(secret) >= _SHORTEST} - _KNOWN.secrets - _NONE
    if new:
        _KNOWN.secrets |= new
        longest_first = sorted(_KNOWN.secrets, key=len, reverse=True)
        _KNOWN.pattern = re.compile("|".join(map(_anywhere, longest_first)))


def known() -> tuple[str, ...]:
    """The secrets that this process knows, to pass on to another."""
    return tuple(_KNOWN.secrets)


def hidden(text: str) -> str:
    """A text with its secrets replaced: those known by value, and those that the words before them show."""
    return _IN_TEXT.sub(lambda found: found["before"] + HIDDEN, _KNOWN.pattern.sub(HIDDEN, text))


def without_secrets(value: Any, name: str = "") -> Any:
    """A configuration with its secrets replaced, whether its names or `hidden` show them."""
    if value and _SECRET_NAME.search(name):
        return HIDDEN
    if isinstance(value, Mapping):
        return {key: without_secrets(item, str(key)) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_secrets(item, name) for item in value]
    return hidden(value) if isinstance(value, str) else value


def has_secret(name: str, value: str) -> bool:
    return bool(without_secrets(value, name) != value)


def _found(value: Any, name: str) -> Iterator[str]:
    """The secrets of a configuration, in every form that a text may have."""
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
    """The expression for a secret; a short one only matches as a word."""
    return re.escape(secret) if len(secret) >= _LONG else rf"(?<!\w){re.escape(secret)}(?!\w)"
