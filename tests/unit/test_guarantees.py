"""Each sentence of docs/guarantees.md is shown by tests that exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
SENTENCES = re.findall(r"^- (.+?)(?=^- |^\n|\Z)", PAGE, re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"`(test_\w+\.py)::(test_\w+)`")


@cache
def names_of_tests(name: str) -> set[str]:
    """The tests of the file of that name."""
    (path,) = (ROOT / "tests").rglob(name)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("said", SENTENCES)
def test_a_sentence_has_tests_that_exist(said: str) -> None:
    sentence, mark, shown = said.partition("\n  `")
    assert mark and re.fullmatch(r"[^.`]*(`[^`]*`[^.`]*)*\.", sentence), "one sentence, then its tests"
    named = NAMED.findall(f"`{shown}")
    assert named and NAMED.sub("", f"`{shown}").strip(" ,\n") == ""
    assert [(file, test) for file, test in named if test not in names_of_tests(file)] == []


def test_nothing_is_promised_without_tests() -> None:
    assert len(SENTENCES) > 20
    sections = PAGE[PAGE.index("\n## ") :]
    rest = re.sub(r"^- .+?(?=^\n|\Z)", "", sections, flags=re.MULTILINE | re.DOTALL).splitlines()
    assert [line for line in rest if line and not line.startswith(("## ", "| ", "<!--"))] == []
