"""The name of a module says who uses it: `_x.py` is its package's own."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def users(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """The modules that import each module, some by its name in a text."""
    found = defaultdict(set)
    for user, source in sources.items():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    found[inner if inner in sources else node.module].add(user)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    found[alias.name].add(user)
            elif isinstance(node, ast.Constant) and node.value in sources:
                found[node.value].add(user)
    return found


def test_a_module_that_only_its_package_uses_has_a_name_that_says_so() -> None:
    sources = {
        name_of(path): path.read_text(encoding="utf-8")
        for directory in ("dpa", "jobs", "experiments")
        for path in sorted((ROOT / directory).rglob("*.py"))
    }
    packages = {name_of(path.parent) for path in (ROOT / "dpa").rglob("__init__.py")}
    programs = set(re.findall(r"-m (dpa[\w.]*)", "\n".join(sources.values())))
    wrong = []
    for module, of in users(sources).items():
        package, _, name = module.rpartition(".")
        if module not in sources or module in packages or package in ("", "dpa") or not module.startswith("dpa."):
            continue
        is_own = all(user == package or user.startswith(f"{package}.") for user in of)
        if module not in programs and is_own != name.startswith("_"):
            wrong.append(f"{module}, which {', '.join(sorted(of - {package})[:3])} use")
    assert wrong == []
