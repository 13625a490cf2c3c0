"""Words that messages share, foreign text made safe to show, and hosts that are this machine."""

import difflib
import re
from collections.abc import Iterable
from ipaddress import ip_address

_MIN_LIMIT = 32  # characters shown of each component of a composite key at least

_NUMBER_LIKE = re.compile(r"[+-]?[0-9]")


def alternatives(names: Iterable[str]) -> str:
    """Names in a sentence, as `a, b or c`."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def suggestion(name: str, known: Iterable[str], otherwise: str = "", before: str = "") -> str:
    """`did you mean 'x'?`, after `before`, if a known name is like this one; else `otherwise`."""
    close = difflib.get_close_matches(name, [*known], n=1)
    return f"{before}did you mean {close[0]!r}?" if close else otherwise


def plural(number: int, noun: str) -> str:
    """`1 row`, `2,000 rows`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def converted(sql: str, python: str) -> str:
    """How to derive a column: by SQL where Spark reads the input, or by Python for any row."""
    return f"`{sql}` in the `select` of an input that Spark reads, or `{python}` in a function of a record"


def text_hint(column: str) -> str:
    return f"`cast({column} AS string) AS {column}` in a step `with_columns`, or the `select` of an input of Spark's"


def is_loopback(host: str) -> bool:
    """Whether a host's name or address is that of the machine itself, which no other machine reaches."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def one_line(text: str, limit: int = 500) -> str:
    """`text` on one line: unprintable characters are escaped; a text over `limit` is cut and its length given."""
    if len(text) > limit:
        head = max(limit - 24, 8)
        return f"{_escaped(text[:head])}... ({len(text):,} characters)"
    return _escaped(text)


def shortened(text: str, limit: int = 200) -> str:
    """`text`, cut to `limit` characters."""
    return text if len(text) <= limit else f"{text[:limit]}..."


def key_text(key: object, limit: int = 60) -> str:
    """A key as readable text on one line; different keys have different texts.

    Text is shown bare (`the`) unless it could be mistaken: empty, with outer spaces, a leading quote, backslashes or
    unprintable characters, or like a number, a null or bytes. Then it is quoted: `"5"`,
    `"a\\nb"`. Numbers are digits, None is `null`, booleans are `true` and `false`, dates and times ISO's text, bytes
    Python's literal (`b'\\xff'`). A composite key is its components in parentheses, `(DE, 5)`; text that holds a comma
    or a parenthesis is quoted there. A key longer than `limit` characters is cut, and its length is given.
    """
    if isinstance(key, tuple):
        each = max(limit // len(key), _MIN_LIMIT)
        return f"({', '.join(_component_text(component, each, ',()') for component in key)})"
    return _component_text(key, limit)


def _component_text(key: object, limit: int, reserved: str = "") -> str:
    """As `key_text`, of a part of a key; text with one of the `reserved` characters is quoted."""
    if key is None:
        return "null"
    if isinstance(key, bool):
        return str(key).lower()
    if isinstance(key, (bytes, bytearray, memoryview)):
        data = bytes(key)
        if len(data) <= limit:
            return repr(data)
        return f"{data[: max(limit - 24, 8)]!r}... ({len(data):,} bytes)"
    if not isinstance(key, str):
        return one_line(str(key), limit)
    if key.isprintable() and not _needs_quotes(key) and not any(character in key for character in reserved):
        return one_line(key, limit)
    if len(key) <= limit:
        return f'"{_escaped(key, quoted=True)}"'
    return f'"{_escaped(key[: max(limit - 24, 8)], quoted=True)}"... ({len(key):,} characters)'


def _needs_quotes(key: str) -> bool:
    return (
        key == ""
        or key != key.strip()
        or key in ("null", "true", "false")
        or "\\" in key
        or key[0] in "\"'"
        or key.startswith(("b'", 'b"'))
        or _NUMBER_LIKE.match(key) is not None
    )


def _escaped(text: str, quoted: bool = False) -> str:
    """`text` with unprintable characters (controls, bidirectional marks, surrogates) escaped."""
    if text.isprintable() and not quoted:
        return text
    return "".join(_escape(character, quoted) for character in text)


def _escape(character: str, quoted: bool) -> str:
    if quoted and character in '"\\':
        return "\\" + character
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
