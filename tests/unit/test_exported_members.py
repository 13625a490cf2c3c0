"""The public names of the package, as they are written down here, and its private modules: `_x.py` is of its package.

A name that is added, renamed or removed is a change that users see: change this list with it, and the changelog.
"""

import ast
import importlib
import pkgutil
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

import dpa

ROOT = Path(__file__).parents[2]

EXPORTED = {
    "dpa": """
        BatchMapper BatchReducer Feed Flow Generator Groups Job Mapper Page Poller Process Reducer Result Results
        RowsReducer RunningJob Sink batch_filter batch_mapper epochs results session sliding tumbling""",
    "dpa.placement.allocators": "ALLOCATORS Allocator allocator_of",
    "dpa.checkpoints": "Chain CheckpointStore Collected DataFiles FileRef Manifest Part TaskParts",
    "dpa.storage": "DirectoryFiles Files Purpose S3Files files_at",
    "dpa.result": """
        EdgeReport GroupingReport HotKey JoinReport KeyDistribution LatencyReport LoadShares OutputReport
        RecordCounts RecordTimes RecoveryReport ReferenceReport Report Result Seconds SkewReport StageReport
        TaskReport TrafficReport hot when_written""",
    "dpa.testing": """
        ExecutorError FeedError LawError LocalBackend LocalCluster check_feed check_reducer_laws run_local""",
}
"""What users and those who extend dpa import of packages."""

INNER = ("dpa.config", "dpa.report", "dpa.spark")
"""Packages that export to others of dpa; all that are in neither export modules only."""


def packages() -> list[str]:
    found = pkgutil.walk_packages(dpa.__path__, "dpa.")
    return ["dpa", *(module.name for module in found if module.ispkg)]


@pytest.mark.parametrize("package", [package for package in packages() if package not in INNER])
def test_a_package_exports_exactly_the_names_that_are_written_down(package: str) -> None:
    assert getattr(importlib.import_module(package), "__all__", []) == EXPORTED.get(package, "").split()


@pytest.mark.parametrize("package", [*EXPORTED, *INNER])
def test_every_exported_name_exists(package: str) -> None:
    module = importlib.import_module(package)
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


@cache
def named(file: Path) -> tuple[set[str], set[str]]:
    """The dotted names that a module imports (of `from a import b` both `a` and `a.b`, as `b` may be a module), and its
    texts."""
    imports, texts = set[str](), set[str]()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imports |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            imports |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.add(node.value)
    return imports, texts


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def test_a_module_that_only_its_package_uses_has_a_name_that_says_so() -> None:
    files = [file for top in ("dpa", "jobs", "experiments") for file in sorted((ROOT / top).rglob("*.py"))]
    modules = {name_of(path): path for path in files}
    packages = {name_of(path.parent) for path in (ROOT / "dpa").rglob("__init__.py")}
    programs = set(re.findall(r"-m (dpa[\w.]*)", "\n".join(path.read_text(encoding="utf-8") for path in files)))
    users, wrong = defaultdict(set), []
    for user, path in modules.items():
        for module in modules.keys() & set[str]().union(*named(path)):  # some are imported by their name in a text
            users[module].add(user)
    for module, of in users.items():
        package, _, name = module.rpartition(".")
        if module in packages or package in ("", "dpa") or not module.startswith("dpa.") or module in programs:
            continue
        if all(user == package or user.startswith(f"{package}.") for user in of) != name.startswith("_"):
            wrong.append(f"{module}, which {', '.join(sorted(of - {package})[:3])} use")
    assert wrong == []


@pytest.mark.parametrize("package", INNER)
def test_what_an_inner_package_exports_is_used_elsewhere(package: str) -> None:
    own = ROOT.joinpath(*package.split("."))
    files = [file for top in ("dpa", "experiments", "jobs", "tests") for file in (ROOT / top).rglob("*.py")]
    words = {word for file in files if own not in file.parents for word in re.findall(r"\w+", file.read_text("utf-8"))}
    assert [name for name in importlib.import_module(package).__all__ if name not in words] == []


def private_module_of_another_package(name: str, file: Path) -> bool:
    """Whether a dotted name has a part `_x` that is a module below `dpa` in whose package the file does not lie. The
    helpers in `dpa._util` are the experiments' too."""
    parts = name.split(".")
    for depth, part in enumerate(parts):
        package = ROOT.joinpath(*parts[:depth])
        is_module = (package / f"{part}.py").exists() or (package / part / "__init__.py").exists()
        owners = {package, ROOT / "experiments"} if part == "_util" else {package}
        if part.startswith("_") and is_module and not owners & set(file.parents):
            return True
    return False


@pytest.mark.parametrize("directory", ["dpa", "experiments", "jobs"])
def test_private_modules_are_imported_only_within_their_package(directory: str) -> None:
    found = {
        f"{file.relative_to(ROOT)} imports {name}"
        for file in (ROOT / directory).rglob("*.py")
        for name in named(file)[0]
        if private_module_of_another_package(name, file)
    }
    assert found == set()


@pytest.mark.parametrize(
    ("name", "file", "refused"),
    [
        ("dpa.report._files", "dpa/run.py", True),
        ("dpa.report._files.schema", "experiments/charts.py", True),
        ("dpa.report._files", "dpa/report/_screens.py", False),
        ("dpa._util.disk", "dpa/report/_files.py", False),
        ("dpa._util", "jobs/letters.py", True),
        ("dpa._util.disk", "experiments/looked.py", False),
        ("dpa.report", "experiments/charts.py", False),
        ("dpa.routing.ring._private_name", "dpa/run.py", False),
    ],
)
def test_private_modules_are_recognised(name: str, file: str, refused: bool) -> None:
    assert private_module_of_another_package(name, ROOT / file) is refused
