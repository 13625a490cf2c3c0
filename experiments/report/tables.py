"""The tables of docs/job-files.md, printed from docstrings, and those of docs/command.md and docs/metrics.md from the
tables of commands and of metrics: `python -m experiments.report.tables`.

Keys, types, bounds and defaults are those of the schemas, meanings the docstrings of the keys. A table stands below the
heading of its section; the text around it is written by hand. The keys of a section without a heading are listed below
the key that has it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from dpa.command import COMMANDS
from dpa.config import json_schema
from dpa.config.variants import VARIANTS, Variants
from dpa.door.metrics import FAMILIES

COMMAND = "python -m experiments.report.tables"
_DOCS = Path(__file__).parents[2] / "docs"

_HEADINGS = {
    "JobConfig": "The job",
    "ExecutorConfig": "`mapper` and `reducer`",
    "ReducerConfig": "`mapper` and `reducer`",
    "JobResourcesConfig": "`resources`",
    "StepConfig": "`stages`",
    "FlowControl": "`limits`",
    "JobLimits": "`limits`",
}
"""The headings in docs/job-files.md of sections that are not named after the first part of their class."""

_PARTS = {"FlowControl", "ExecutorConfig", "ResourcesConfig"}
"""Sections whose keys are in the table of a larger one."""

Row = tuple[str, str, str, str]
"""A key, its type, its default and its meaning."""

_BOUNDS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
_WORDS = {"boolean": "true or false", "array": "list", "object": "mapping"}


class Page:
    """A page of docs/ and its tables."""

    def __init__(self, name: str, objects: Mapping[str, Any], headings: Mapping[str, str]) -> None:
        """`objects`: JSON schemas of what has a table, by name; `headings`: the headings above the tables."""
        self.path = _DOCS / name
        self._text = self.path.read_text(encoding="utf-8")
        self.objects, self._headings = objects, headings

    def printed(self, tables: Mapping[str, str]) -> str:
        """The page with these tables, by the name of what they describe, in place of those that it has.

        Raises:
            LookupError: there is no table below the heading of one.
        """
        text = self._text
        for name, table in tables.items():
            _, begin = self._heading(name).span()
            before, below = text[:begin], text[begin:]
            own, after = re.split(r"(?=^##)", below, maxsplit=1, flags=re.MULTILINE) if "\n##" in below else (below, "")
            own, found = re.subn(r"(?:^\|.*\n)+", lambda _, table=table: table, own, count=1, flags=re.MULTILINE)
            if not found:
                raise LookupError(f"{self.path.name} has no table below {self._headings[name]!r}")
            self._text = text = before + own + after
        return text

    def link(self, name: str, shown: str) -> str:
        """A link to the heading of something."""
        heading = self._heading(name).group().lstrip("# ").lower()
        anchor = re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")
        return f"[{shown}](#{anchor})"

    def type_of(self, found: Mapping[str, Any]) -> str:
        """The type of a value in words, with its bounds."""
        if "$ref" in found or "properties" in found:
            name = str(_class_of(found))
            if "enum" in self.objects[name]:
                return self.type_of(self.objects[name])
            return self.link(name, "section") if name in self._headings else "mapping"
        if "oneOf" in found:
            [variants] = [each for each in VARIANTS.values() if each.by == found["discriminator"]["propertyName"]]
            return self.link(variants.section, "section")
        if "anyOf" in found:
            choices = [choice for choice in found["anyOf"] if not (choice.get("type") == "null" and _may_lack(found))]
            plain = [{"type": "string"} if "enum" in choice and len(choices) > 1 else choice for choice in choices]
            return _or(dict.fromkeys(self.type_of(choice) for choice in plain))
        if "enum" in found or "const" in found:
            return _or(f"`{value}`" for value in found.get("enum", [found.get("const")]))
        word = _WORDS.get(found.get("type", ""), found.get("type", "anything"))
        of = found.get("items") or found.get("additionalProperties") or {}
        of = next(iter(found.get("patternProperties", {}).values()), of)
        if isinstance(of, dict) and of and "anyOf" not in of:
            items = re.sub(r"^(\[?)(string|integer|number|list|mapping|section)", r"\1\2s", self.type_of(of))
            return f"{word} of {items}"
        bounds = ", ".join(f"{sign} {found[bound]}" for bound, sign in _BOUNDS.items() if bound in found)
        return f"{word} {bounds}".rstrip()

    def inside(self, found: Mapping[str, Any]) -> str | None:
        """The section or class of a value, if it has no heading here."""
        name = _class_of(found)
        return None if name in self._headings else name

    def _heading(self, name: str) -> re.Match[str]:
        heading = self._headings[name]
        found = re.search(rf"^##+ {re.escape(heading)}(?::.*)?$", self._text, re.MULTILINE)
        if not found:
            raise LookupError(f"{self.path.name} has no heading {heading!r}")
        return found


def job_files() -> str:
    """The page docs/job-files.md with its tables made anew.

    Raises:
        LookupError: a key has no docstring, or a heading no table.
    """
    document = json_schema()
    variants = {options.__name__ for of in VARIANTS.values() for options in of.classes.values()}
    objects = {"JobConfig": document, **document["$defs"]}
    text = (_DOCS / "job-files.md").read_text(encoding="utf-8")
    named = {name: _HEADINGS.get(name, f"`{_section(name)}`") for name in objects if name not in variants}
    headings = {name: heading for name, heading in named.items() if re.search(f"^##+ {heading}$", text, re.MULTILINE)}
    headings["JobConfig"] = named["JobConfig"]
    page = Page("job-files.md", objects, headings | {name: f"`{name}`" for name in VARIANTS})
    tables = {name: list(keys(page, objects[name])) for name in headings if name not in _PARTS}
    tables["StepConfig"] = _once(tables["StepConfig"], tables["JobConfig"], page.link("JobConfig", "the job"))
    head = ("key", "type", "default", "meaning")
    printed = {name: _table(head, rows) for name, rows in tables.items()}
    return page.printed(printed | {name: _choices(page, of, objects) for name, of in VARIANTS.items()})


def command() -> str:
    """The page docs/command.md with its table of commands made anew."""
    examples = {name: f"dpa {name} {each.example}".rstrip() for name, each in COMMANDS.items()}
    rows = [(f"`dpa {name}`", each.summary, f"`{examples[name]}`") for name, each in COMMANDS.items()]
    page = Page("command.md", {}, {"COMMANDS": "Commands"})
    return page.printed({"COMMANDS": _table(("command", "what it does", "example"), rows)})


def metrics() -> str:
    """The page docs/metrics.md with its table of series made anew."""
    labels = {each.name: ", ".join(f"`{label}`" for label in each.labels if label != "job") for each in FAMILIES}
    rows = [(f"`{each.name}`", each.kind, labels[each.name], each.help) for each in FAMILIES]
    page = Page("metrics.md", {}, {"FAMILIES": "Series"})
    return page.printed({"FAMILIES": _table(("series", "type", "labels", "meaning"), rows)})


def keys(page: Page, section: Mapping[str, Any], of: str = "") -> Iterator[Row]:
    """The keys of a section of a job file, and below each those of a section that has no table.

    Raises:
        LookupError: a key has no docstring.
    """
    for key, found in section["properties"].items():
        default = "required" if key in section.get("required", ()) else _default(found.get("default", {"": ""}))
        yield f"`{of}{key}`", page.type_of(found), default, _meaning(found, key)
        if inner := page.inside(found):
            yield from keys(page, page.objects[inner], f"{of}{key}.")


def _once(rows: list[Row], others: list[Row], link: str) -> list[Row]:
    """The rows, with one for all that other rows say word for word."""
    same = ", ".join(row[0] for row in rows if row in others and "." not in row[0])
    return [*(row for row in rows if row not in others), (same, "", "", f"As in {link}.")]


def _choices(page: Page, variants: Variants, objects: Mapping[str, Any]) -> str:
    """The table of a section whose keys depend on one of them."""
    sections = {name: objects[options.__name__]["properties"] for name, options in variants.classes.items()}
    keys = dict.fromkeys(key for name in (variants.default, *sections) for key in sections[name])
    rows = []
    for key in [variants.by, *(key for key in keys if key != variants.by)]:
        has = {name: section[key] for name, section in sections.items() if key in section}
        names = "all" if len(has) == len(sections) else ", ".join(f"`{name}`" for name in has)
        default = _apart({name: _default(found["default"]) for name, found in has.items()}, "; ")
        types = {name: page.type_of(found) for name, found in has.items()}
        if key == variants.by:
            default, types = f"`{variants.default}`", dict.fromkeys(has, _or(f"`{name}`" for name in sections))
        meaning = _apart({name: _meaning(found, key) for name, found in has.items()}, " ")
        rows.append((f"`{key}`", names, _apart(types, "; "), default, meaning))
    return _table(("key", variants.by, "type", "default", "meaning"), rows)


def _section(name: str) -> str:
    return re.sub("(Config|Options)$", "", name).lower()


def _class_of(found: Mapping[str, Any]) -> str | None:
    """The class of a value, of the values in a list or mapping of it, or of the one that it may be beside others."""
    if "properties" in found or "$ref" in found:
        return str(found.get("title") or found["$ref"].rsplit("/", 1)[1])
    parts = [*found.get("anyOf", ()), found.get("items"), found.get("additionalProperties")]
    return next((name for part in parts if isinstance(part, dict) and (name := _class_of(part))), None)


def _may_lack(found: Mapping[str, Any]) -> bool:
    """Whether null is no value but says that a key is left out."""
    return found.get("default", "") is None


def _meaning(found: Mapping[str, Any], key: str) -> str:
    if "description" not in found:
        raise LookupError(f"the key {key!r} has no docstring")
    return " ".join(found["description"].split())


def _default(default: Any) -> str:
    if isinstance(default, dict) and default:
        return "section"
    return f"`{default}`" if isinstance(default, str) else f"`{yaml.safe_dump(default).splitlines()[0]}`"


def _apart(texts: Mapping[str, str], between: str) -> str:
    """One text for all, or that of most, and those of others by name; where each has its own, all by name."""
    of = {text: [f"`{name}`" for name, other in texts.items() if other == text] for text in texts.values()}
    usual = max(of, key=lambda text: len(of[text]))
    plain = usual if len(of) == 1 or len(of[usual]) > 1 else None
    parts = [text if text == plain else f"{', '.join(names)}: {text}" for text, names in of.items()]
    return between.join(sorted(parts, key=lambda part: part != plain))


def _or(words: Iterable[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |\n" for line in lines)


PAGES = {"command.md": command, "job-files.md": job_files, "metrics.md": metrics}
"""What makes each page anew."""

if __name__ == "__main__":
    for name, made in PAGES.items():
        (_DOCS / name).write_text(made(), encoding="utf-8")
