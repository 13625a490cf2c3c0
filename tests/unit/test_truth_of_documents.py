"""What documents say of the code is so, in plain words; and a name means one thing."""

import re
from collections import Counter
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "dpa").rglob("*.py"))}
TESTS = {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests").rglob("test_*.py"))}

# --- names in docs/design.md

DESIGN = re.sub(r"^```.*?^```", "", (ROOT / "docs" / "design.md").read_text(encoding="utf-8"), flags=re.M | re.S)
QUOTED = sorted(set(re.findall(r"`([^`]+)`", DESIGN)))
DEFINED = re.compile(
    r"^\s*(?:async )?(?:class|def) (\w+)"  # classes and functions
    r"|^\s*(?:self\.)?(\w+)(?:: [^=\n]+)?(?: =|$)"  # variables, attributes and fields
    r"|[(,] ?(\w+): |^\s+(\w+): [^\n]+,$",  # parameters
    re.MULTILINE,
)
NOT_OF_THE_PACKAGE = {
    "make lint": "a target of the Makefile",
    "make test": "a target of the Makefile",
    "experiments/results/NAME.json": "stands for all results",
    ".md": "the end of a file's name",
    ".png": "the end of a file's name",
}


@cache
def names() -> dict[Path, set[str]]:
    """The classes, functions, variables, attributes and parameters of each module, and its own name."""
    return {
        path: {
            *(name for match in DEFINED.finditer(text) for name in match.groups() if name),
            *path.relative_to(ROOT).with_suffix("").parts,
        }
        for path, text in {**SOURCES, **TESTS}.items()
    }


def exists(quoted: str) -> bool:
    """Whether there is what a document names: a module that can be run, a file, or a name of the code. An attribute
    must be in the module of its class."""
    if module := re.match(r"python -m ([\w.]+)", quoted):
        return find_spec(module[1]) is not None
    if "/" in quoted or quoted.endswith(".py"):
        return (ROOT / quoted).exists() or any(path.name == quoted for path in names())
    identifier = re.fullmatch(r"([\w.]+)(?:=|: .*|\(.*\))?", quoted)
    if identifier is None:
        return False
    owner, *attributes = identifier[1].split(".")
    everywhere = set().union(*names().values())
    if not attributes:
        return owner in everywhere
    classes = [names()[path] for path, text in SOURCES.items() if re.search(rf"^class {owner}\b", text, re.MULTILINE)]
    return owner in everywhere and set(attributes) <= (set().union(*classes) or everywhere)


def test_tests_that_documents_name_are_there() -> None:
    named = {name for page in (ROOT / "docs").glob("*.md") for name in re.findall(r"`(test_\w+)`", page.read_text())}
    assert named <= {match for text in TESTS.values() for match in re.findall(r"def (test_\w+)", text)}


def test_everything_exists_that_the_design_names() -> None:
    assert [quoted for quoted in QUOTED if quoted not in NOT_OF_THE_PACKAGE and not exists(quoted)] == []


@pytest.mark.parametrize("gone", ["_CLASSES", "GroupingConfig", "Emission.of_kind", "dpa/protocol/bins.py"])
def test_what_does_not_exist_is_found(gone: str) -> None:
    assert not exists(gone)


# --- public classes


def test_no_two_public_classes_have_one_name() -> None:
    names = Counter(name for text in SOURCES.values() for name in re.findall(r"^class ([A-Z]\w*)", text, re.MULTILINE))
    assert [name for name, count in names.items() if count > 1] == []


# --- words

UNCLEAR = re.compile(r"\bso (?:many|long)\b|\b(?:tells?|told|telling)\b", re.IGNORECASE)
"""Words that stand for a parameter, a unit or a verb that has a name of its own."""

PAGES = ["README.md", "CONTRIBUTING.md", *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md")))]
PACKAGES = sorted(path.name for path in (ROOT / "dpa").iterdir() if path.suffix == ".py" or path.is_dir())


def prose(written: str) -> str:
    """What is written for people: all of a page, the docstrings and comments of a package."""
    if written in PAGES:
        return (ROOT / written).read_text(encoding="utf-8")
    text = "\n".join(text for path, text in SOURCES.items() if path.is_relative_to(ROOT / "dpa" / written))
    return "\n".join(re.findall(r'""".*?"""|# [^\n]*', text, re.DOTALL))


TRANSLATED = {
    r"go(?:es|ing)? on": "continues",
    r"behind (?:\w+ ){0,2}(?:checkpoint|function|window|step|epoch|join|commit|stage|death)s?": "after, downstream of",
    r"so (?:is|are|was|were|does|do|did|has|have|can|may|must|will)": "the subject first",
    r"(?:are|is) (?:others?|another) than|others than": "differs, has changed",
    r"none (?:names?|knows?|reach(?:es)?)": "no checkpoint names it",
    r"one's own|somebody|nobody|anybody": "custom, you, or who it is",
    r"(?:is|are) (?:said|told)": "is reported, comes from",
    r"tak(?:es?|ing) part in": "is in, uses",
    r"(?:is|are) seen to": "is handled",
    r"as far as": "if, where",
    r"(?:is|are) th(?:at|ose) of": "the noun again",
    r"of (?:which|whom)": "whose, or two sentences",
    r"whatever happens|in silence": "in every case, silently",
    r"(?:is|are|was|were) to be": "must be, will be",
    r"beg[iu]n(?:s|ning)? again|anew": "restarts, again",
    r"(?:input|job|step)s? without end": "unbounded",
    r"steps? by key": "keyed step",
    r"own matter|seldom": "yours to do, rarely",
}
"""Phrases that read as translated, and what to write instead."""

PHRASES = {re.compile(rf"\b(?:{phrase})\b", re.IGNORECASE): better for phrase, better in TRANSLATED.items()}
NOT_YET = {"docs/results.md"}
"""Pages that may still have such phrases. Names of targets on the page of results are those of the result files."""


def sentences(page: str) -> str:
    """The text of a page on one line, without code; of the changelog, the newest version."""
    text = (ROOT / page).read_text(encoding="utf-8")
    if page == "CHANGELOG.md":
        text = text.partition("## [0.2.0]")[2].partition("\n## ")[0]
    code = re.compile(r"^\s*```.*?^\s*```|`[^`]*`", re.MULTILINE | re.DOTALL)
    return " ".join(code.sub("`", text).split())


@pytest.mark.parametrize("page", [*PAGES, "CHANGELOG.md"])
def test_no_phrase_is_translated_in(page: str) -> None:
    text = sentences(page)
    found = {
        text[max(0, hit.start() - 40) : hit.end() + 20]: PHRASES[phrase]
        for phrase in PHRASES
        for hit in phrase.finditer(text)
    }
    assert page in NOT_YET or found == {}


SENTENCES = {
    "After its driver's, `--resume` goes on.": True,
    "Behind functions of a record the columns are known.": True,
    "Output that what none names.": True,
    "Windows are others than they would have been.": True,
    "Jobs of which processes are killed.": True,
    "So is a record late for nothing.": True,
    "Something other than a table. So far, it continues. Move or go only then.": False,
}


@pytest.mark.parametrize(("sentence", "is_translated"), SENTENCES.items())
def test_a_translated_phrase_is_found_and_plain_english_is_none(sentence: str, is_translated: bool) -> None:
    assert any(phrase.search(sentence) for phrase in PHRASES) == is_translated


@pytest.mark.parametrize("written", PAGES + PACKAGES)
def test_words_are_plain_in(written: str) -> None:
    assert [line for line in prose(written).splitlines() if UNCLEAR.search(line)] == []
