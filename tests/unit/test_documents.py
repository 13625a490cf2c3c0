"""README and docs say what the code says: keys, defaults, names, options; their blocks run and their links resolve."""

import hashlib
import json
import re
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dpa.aggregates import READY_MADE
from dpa.balance.decision import Outcome
from dpa.config import json_schema, parse
from dpa.protocol.assembly import STRATEGY_NAMES
from dpa.testing import run_local

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING")),
    *sorted((ROOT / "docs").glob("*.md")),
]
TEXTS = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in PAGES}
JOB_FILES = TEXTS["docs/job-files.md"]

SCHEMA = json_schema()
HEADINGS = {
    "JobConfig": "## The job",
    "ViewConfig": "### `input.views`",
    "ExecutorConfig": "## `mapper` and `reducer`",
    "AdaptiveConfig": "### `balance.adaptive`",
    **{f"{name.title()}Config": f"## `{name}`" for name in SCHEMA["properties"]},
}
"""Under which heading of docs/job-files.md a section of the schema is described."""

SECTIONS = {"JobConfig": SCHEMA, **SCHEMA["$defs"]}

every_page = pytest.mark.parametrize("page", TEXTS)
every_section = pytest.mark.parametrize("section", SECTIONS)


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXTS[page], re.MULTILINE | re.DOTALL)


def rows(section: str) -> list[list[str]]:
    """The cells of the first table below a section's heading, without its head."""
    _, found, below = JOB_FILES.partition(f"\n{HEADINGS[section]}\n")
    assert found, f"docs/job-files.md has no heading {HEADINGS[section]!r}"
    table = re.search(r"^\| key .*\n\|[ -|]*\n((?:\|.*\n)+)", below, re.MULTILINE)
    assert table, f"docs/job-files.md has no table below {HEADINGS[section]!r}"
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.group(1).splitlines()]


def shown_default(section: str, key: str) -> str:
    """The default as the page should show it."""
    found = SECTIONS[section]["properties"][key]
    if key in SECTIONS[section].get("required", []):
        return "required"
    default = found["default"] if "$ref" not in found else SECTIONS
    if isinstance(default, dict) and default:
        return "section"
    return f"`{default}`" if isinstance(default, str) else f"`{yaml.safe_dump(default).splitlines()[0]}`"


def constraints(found: Any) -> Iterator[str]:
    """What the type column must say of a key's allowed values."""
    if isinstance(found, dict):
        yield from (f"`{value}`" for value in found.get("enum", []))
        names = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
        yield from (f"{sign} {found[name]}" for name, sign in names.items() if name in found)
        for choice in found.get("anyOf", []):
            yield from constraints(choice)


def anchors(page: Path) -> set[str]:
    """The names that headings of a page can be linked by."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


# --- docs/job-files.md


@every_section
def test_job_files_describes_exactly_the_keys_of(section: str) -> None:
    assert [row[0] for row in rows(section)] == [f"`{key}`" for key in SECTIONS[section]["properties"]]


@every_section
def test_job_files_states_the_defaults_of(section: str) -> None:
    stated = {row[0].strip("`"): row[2] for row in rows(section)}
    assert stated == {key: shown_default(section, key) for key in SECTIONS[section]["properties"]}


@every_section
def test_job_files_states_the_allowed_values_of(section: str) -> None:
    for name, kind, *_ in rows(section):
        for constraint in constraints(SECTIONS[section]["properties"][name.strip("`")]):
            assert constraint in kind, f"{section}.{name}"


@every_section
def test_every_key_has_a_meaning_in(section: str) -> None:
    assert all(len(row) == 4 and row[3] for row in rows(section))


# --- docs/executors.md and docs/balancing.md


def test_executors_names_every_ready_made_reducer() -> None:
    section = TEXTS["docs/executors.md"].partition("## Ready-made reducers")[2].partition("\n## ")[0]
    named = re.findall(r"^\| `(\w+)` \| `(\w+)` \|", section, re.MULTILINE)
    assert named == [(name, made.__name__) for name, made in READY_MADE.items()]


def test_balancing_names_every_strategy_trigger_and_outcome() -> None:
    named = re.findall(r"^\| `(\w+)` \| (?!the overloaded)", TEXTS["docs/balancing.md"], re.MULTILINE)
    triggers = SECTIONS["BalanceConfig"]["properties"]["trigger"]["anyOf"][0]["enum"]
    assert set(named) == {*STRATEGY_NAMES, *triggers, *(outcome.value for outcome in Outcome)}


# --- what all pages have in common


@every_page
def test_relative_links_resolve_in(page: str) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", TEXTS[page]):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = ((ROOT / page).parent / path).resolve() if path else ROOT / page
        assert target.exists(), f"{page} links to {link}"
        if anchor:
            assert anchor in anchors(target), f"{page} links to {link}"


@every_page
def test_options_of_the_command_exist_that_are_named_in(page: str) -> None:
    source = (ROOT / "dpa" / "run.py").read_text(encoding="utf-8")
    arguments = re.findall(r"^    (\w+): Annotated", source, re.MULTILINE)
    known = {*re.findall(r'"(--[a-z]+)"', source), *(f"--{name}" for name in arguments)}
    for line in re.findall(r"^(?:\w+=\S+ )*python -m dpa\.run .*$", TEXTS[page], re.MULTILINE):
        assert set(re.findall(r" (--[a-z-]+)", line)) <= known, line


@every_page
def test_job_files_are_valid_that_are_shown_in(page: str) -> None:
    for block in blocks(page, "yaml"):
        parse(yaml.safe_load(block), origin=page)


@every_page
def test_overrides_are_of_keys_that_exist_in(page: str) -> None:
    for override in re.findall(r"--set '?([\w.]+)=", TEXTS[page]):
        current: Any = SCHEMA
        for part in override.split("."):
            if part == "section":
                break
            refs = [current, *current.get("anyOf", [])]
            current = next((SCHEMA["$defs"][ref["$ref"].rsplit("/", 1)[1]] for ref in refs if "$ref" in ref), current)
            assert part in current.get("properties", {}), f"{page}: --set {override}"
            current = current["properties"][part]


@pytest.mark.parametrize("page", ["docs/executors.md", "docs/balancing.md", "docs/design.md"])
def test_the_python_blocks_run_of(page: str) -> None:
    names: dict[str, Any] = {"__name__": "page"}
    found = blocks(page, "python")
    assert found
    for block in found:
        exec(compile(block, page, "exec"), names)


def test_the_job_of_the_readme_gives_what_its_reference_asks_for() -> None:
    names: dict[str, Any] = {"__name__": "visits"}
    exec(compile(blocks("README.md", "python")[0], "visits.py", "exec"), names)
    head, *lines = blocks("README.md", "csv")[0].splitlines()
    visits = [dict(zip(head.split(","), line.split(","), strict=True)) for line in lines]
    job = yaml.safe_load(blocks("README.md", "yaml")[0])
    mapper, reducer = (names[job[kind].partition(":")[2]] for kind in ("mapper", "reducer"))
    result = run_local(mapper, reducer, visits, key=job["key"]).to_pylist()
    assert result == [{"page": "/cart", "value": 95}, {"page": "/help", "value": 40}, {"page": "/home", "value": 31}]


def test_contributing_names_every_target_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = re.findall(r"^\| `make (\w+)` \|", TEXTS["CONTRIBUTING.md"], re.MULTILINE)
    targets = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert targets is not None
    assert sorted(named) == sorted(targets.group(1).split())


def test_the_license_is_the_text_that_the_package_names() -> None:
    text = (ROOT / "LICENSE").read_bytes()
    assert "license = Apache-2.0\n" in (ROOT / "setup.cfg").read_text(encoding="utf-8")
    assert hashlib.sha256(text).hexdigest() == "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"


# --- numbers in the README


def result(name: str) -> dict[str, Any]:
    file = ROOT / "experiments" / "results" / f"{name}.json"
    document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return document


@pytest.mark.parametrize("file", sorted((ROOT / "experiments" / "results").glob("*.json")), ids=lambda file: file.stem)
def test_a_committed_result_was_measured_on_a_commit_without_changes(file: Path) -> None:
    assert json.loads(file.read_text(encoding="utf-8"))["stamp"]["dirty"] is False


def readme_rows(head: str) -> list[str]:
    """The lines of the README's table whose head starts so."""
    table = re.search(rf"^\| {head} .*\n\|[ -|]*\n((?:\|.*\n)+)", TEXTS["README.md"], re.MULTILINE)
    assert table, f"README.md has no table that starts with {head!r}"
    return table.group(1).splitlines()


def test_the_readme_compares_systems_as_they_were_measured() -> None:
    systems = result("throughput")["data"]["systems"]
    base = next(system["records_per_second"] for system in systems if system["system"] == "Spark DataFrame")
    wanted = []
    for system in systems:
        taken, rate = system["seconds"], system["records_per_second"]
        seconds = f"{statistics.median(taken):.2f} ({min(taken):.2f} ... {max(taken):.2f})"
        wanted.append(f"| {system['system']} | {system['tasks']} | {seconds} | {rate / 1e6:.2f} | {rate / base:.2f} |")
    assert readme_rows("system") == wanted
    assert f"commit {result('throughput')['stamp']['commit'][:7]}, " in TEXTS["README.md"]


OTHERS = ("naive", "memory", "startup", "interleavings", "table1", "figure3", "walltime", "makespan", "scale")
GROUPINGS = ("groupings", "cg_9", "cg_10", "cg_13", "cg_14", "cg_15", "cg_beyond", "aggregation")


@pytest.mark.parametrize(("head", "names"), [("what", OTHERS), ("of groupings", GROUPINGS)])
def test_the_readme_states_every_other_target_and_what_was_reached(head: str, names: tuple[str, ...]) -> None:
    wanted = []
    for name in names:
        for target in result(name)["targets"]:
            reached = target["reached"]
            if isinstance(reached, float):
                reached = f"{reached:,.3g}" if abs(reached) < 1000 else f"{reached:,.0f}"
            wanted.append(f"| {target['name']} | `{name}` | {target['wanted']} | {reached} |")
    assert readme_rows(f"{head} \\| experiment") == wanted
