"""The name of a module says who uses it: `_x.py` is its package's own."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


TREES = {
    name_of(path): ast.parse(path.read_text(encoding="utf-8"))
    for directory in ("dpa", "jobs", "experiments")
    for path in sorted((ROOT / directory).rglob("*.py"))
}
PACKAGES = {name_of(path.parent) for path in (ROOT / "dpa").rglob("__init__.py")}
RUN = set(re.findall(r"-m (dpa[\w.]*)", "\n".join(ast.unparse(tree) for tree in TREES.values())))
"""Modules that are programs."""


def users() -> dict[str, set[str]]:
    """The modules that import each module, some by its name in a text."""
    found = defaultdict(set)
    for user, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    found[inner if inner in TREES else node.module].add(user)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    found[alias.name].add(user)
            elif isinstance(node, ast.Constant) and node.value in TREES:
                found[node.value].add(user)
    return found


def test_a_module_that_only_its_package_uses_has_a_name_that_says_so() -> None:
    wrong = []
    for module, of in users().items():
        package, _, name = module.rpartition(".")
        if module not in TREES or module in PACKAGES or package in ("", "dpa") or not module.startswith("dpa."):
            continue
        is_own = all(user == package or user.startswith(f"{package}.") for user in of)
        if module not in RUN and is_own != name.startswith("_"):
            wrong.append(f"{module}, which {', '.join(sorted(of - {package})[:3])} use")
    assert wrong == []
