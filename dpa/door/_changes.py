"""Changes of JSON documents as merge patches (RFC 7396). A patch says "removed" by null, so a value that is null counts
as absent."""

from collections.abc import Mapping
from typing import Any


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The patch that makes `after` of `before`; empty if they are equal. Lists are replaced as a whole, if Python
    has them for different."""
    patch: dict[str, Any] = {}
    for name, value in after.items():
        old = before.get(name)
        if isinstance(value, Mapping):
            inner = difference(old if isinstance(old, Mapping) else {}, value)
            if inner or not isinstance(old, Mapping):
                patch[name] = inner
        elif value is not None and (value != old or type(value) is not type(old)):  # True is 1, but not in JSON
            patch[name] = value
    gone = (name for name, old in before.items() if old is not None and after.get(name) is None)
    return {**patch, **dict.fromkeys(gone)}


def applied(document: Any, patch: Any) -> Any:
    """The document that a patch makes of another one, which stays unchanged."""
    if not isinstance(patch, Mapping):
        return patch
    made = dict(document) if isinstance(document, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            made.pop(name, None)
        else:
            made[name] = applied(made.get(name), value)
    return made
