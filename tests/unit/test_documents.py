"""README and docs say what the code says: keys, defaults, names, options; their blocks run and their links resolve."""

import ast
import configparser
import hashlib
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from dpa.aggregates import READY_MADE
from dpa.balance.decision import Outcome
from dpa.balance.options import BY_STRATEGY
from dpa.command import COMMANDS, imported
from dpa.config import json_schema, parse
from dpa.config._section import Section
from dpa.config.variants import VARIANTS
from dpa.job import Job
from dpa.testing import LocalBackend, run_local
from experiments.report import tables
from experiments.report.ages import load_ages
from experiments.report.findings import load_findings
from experiments.report.page import COMMAND, render_page, with_table
from experiments.report.results import load_results

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING")),
    *sorted((ROOT / "docs").glob("*.md")),
]
TEXTS = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in PAGES}

SCHEMA = json_schema()

every_page = pytest.mark.parametrize("page", TEXTS)


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXTS[page], re.MULTILINE | re.DOTALL)


def options(name: str) -> set[str]:
    """Those of a command, and of the commands in it."""
    command = imported(name)
    every = [command, *getattr(command, "commands", {}).values()]
    return {option for each in every for parameter in each.params for option in parameter.opts}


def anchors(page: Path) -> set[str]:
    """The names that headings of a page can be linked by."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


# --- docs/job-files.md and docs/report.md


@pytest.mark.parametrize("page", tables.PAGES)
def test_the_tables_are_what_the_docstrings_say_in(page: str) -> None:
    assert TEXTS[f"docs/{page}"] == tables.PAGES[page](), f"renew it by `{tables.COMMAND}`"


def test_a_key_without_a_docstring_is_refused() -> None:
    class Bare(Section):
        key: int = 1

    with pytest.raises(LookupError, match="the key 'key' has no docstring"):
        list(tables.keys(tables.Page("job-files.md", {}, {}), Bare.model_json_schema()))


# --- docs/executors.md and docs/balancing.md


def test_executors_names_every_ready_made_reducer_and_balancing_every_strategy_and_outcome() -> None:
    section = TEXTS["docs/executors.md"].partition("## Ready-made reducers")[2].partition("\n## ")[0]
    reducers = re.findall(r"^\| `(\w+)` \| `(\w+)` \|", section, re.MULTILINE)
    assert reducers == [(name, made.__name__) for name, made in READY_MADE.items()]
    named = re.findall(r"^\| `(\w+)` \| (?!the overloaded)", TEXTS["docs/balancing.md"], re.MULTILINE)
    assert set(named) == {*BY_STRATEGY, *(outcome.value for outcome in Outcome)}


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
def test_job_files_are_valid_and_options_and_overrides_exist_that_are_shown_in(page: str) -> None:
    for block in blocks(page, "yaml"):
        parse(yaml.safe_load(block), origin=page)
    line = re.compile(r"^(?:\w+=\S+ )*(?:python -m dpa\.|dpa )([\w-]+) (.*)$", re.MULTILINE)
    for name, arguments in line.findall(TEXTS[page]):
        if name.replace("_", "-") in COMMANDS:
            assert set(re.findall(r"(?:^| )(--[a-z-]+)", arguments)) <= options(name.replace("_", "-")), arguments
    for override in re.findall(r"--set '?([\w.]+)=", TEXTS[page]):
        of_step = re.fullmatch(r"stages\.\w+\.(.+)", override)
        key_path, current = (of_step[1], SCHEMA["$defs"]["StepConfig"]) if of_step else (override, SCHEMA)
        section, _, key = key_path.partition(".")
        if section in VARIANTS and key:
            assert VARIANTS[section].that_have(key), f"{page}: --set {override}"
            continue
        for part in key_path.split("."):
            if part == "section":
                break
            refs = [current, *current.get("anyOf", [])]
            current = next((SCHEMA["$defs"][ref["$ref"].rsplit("/", 1)[1]] for ref in refs if "$ref" in ref), current)
            assert part in current.get("properties", {}), f"{page}: --set {override}"
            current = current["properties"][part]


@pytest.fixture
def in_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has jobs run without Ray, and write into a directory of the test's."""
    monkeypatch.setattr("dpa.job.RayBackend", lambda *options: LocalBackend())
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "page", [f"docs/{name}.md" for name in ("balancing", "dead-letters", "design", "executors", "flows", "streams")]
)
def test_the_python_blocks_run_of(page: str, in_this_process: None) -> None:
    names: dict[str, Any] = {"__name__": "page"}
    found = blocks(page, "python")
    assert found
    for block in found:
        exec(compile(block, page, "exec"), names)


def test_the_jobs_of_the_readme_give_what_they_say(tmp_path: Path) -> None:
    (tmp_path / "visits.csv").write_text(blocks("README.md", "csv")[0], encoding="utf-8")
    job = yaml.safe_load(blocks("README.md", "yaml")[0])
    assert job.pop("reference") == "auto"  # which needs Spark: `test_references_of_flows`
    read = {"path": str(tmp_path / job.pop("input")), "in_place": True}
    given = {**job, "input": read, "output": {"path": str(tmp_path / "out")}}
    found = Job(**given).run(backend=LocalBackend()).table().to_pylist()
    assert sorted(tuple(row.values()) for row in found) == [("/cart", 1, 95), ("/help", 1, 40), ("/home", 3, 31)]

    names: dict[str, Any] = {"__name__": "visits"}
    exec(compile(blocks("README.md", "python")[0], "visits.py", "exec"), names)
    visits = [{"page": "/home", "seconds": 12}, {"page": "/cart", "seconds": 95}, {"page": "/home", "seconds": 31}]
    result = run_local(names["by_page"], names["longest"], visits, key="page").to_pylist()
    assert result == [{"page": "/cart", "value": 95}, {"page": "/home", "value": 31}]


def test_the_flow_of_the_readme_prints_the_first_rows(
    in_this_process: None, capsys: pytest.CaptureFixture[str]
) -> None:
    [block] = [block for block in blocks("README.md", "python") if "Flow(" in block]
    exec(compile(block, "trending.py", "exec"), {"__name__": "__main__"})
    printed = ast.literal_eval(capsys.readouterr().out)
    assert printed == [{"rank": 1, "tag": "#ray", "count": 3}, {"rank": 2, "tag": "#go", "count": 2}]


def test_the_readme_is_short_and_the_site_has_a_place_for_every_page() -> None:
    assert TEXTS["README.md"].count("\n") <= 200
    names = (ROOT / "docs" / "site" / "conf.py").read_text(encoding="utf-8")
    assert [page.stem for page in (ROOT / "docs").glob("*.md") if f'"{page.stem}"' not in names] == []


def test_contributing_names_every_target_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = re.findall(r"^\| `make ([\w-]+)(?: \w+=\S+)?` \|", TEXTS["CONTRIBUTING.md"], re.MULTILINE)
    targets = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert targets is not None
    assert sorted(named) == sorted(targets.group(1).split())


def test_the_page_on_installing_names_every_extra_of_users_and_its_package() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    extras = {
        name: re.findall(r"^[\w-]+", packages, re.MULTILINE)
        for name, packages in setup["options.extras_require"].items()
        if name not in {"docs", "experiments", "peers", "test"}
    }
    rows = re.findall(r"^\| (`\w.*?) \| .* \| (\w.*?) \|$", TEXTS["docs/install.md"], re.MULTILINE)
    named = {}
    for of, packages in rows:
        named |= {
            name.strip("`"): [package] for name, package in zip(of.split(", "), packages.split(", "), strict=True)
        }
    assert named == extras


def test_the_license_is_the_text_that_the_package_names() -> None:
    text = (ROOT / "LICENSE").read_bytes()
    assert "license = Apache-2.0\n" in (ROOT / "setup.cfg").read_text(encoding="utf-8")
    assert hashlib.sha256(text).hexdigest() == "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"


# --- docs/results.md and the numbers of the README

RESULTS, FINDINGS = load_results(), load_findings()


@pytest.mark.parametrize("name", RESULTS)
def test_a_committed_result_names_where_it_comes_from(name: str) -> None:
    stamp = RESULTS[name].stamp
    assert stamp["dirty"] is False
    assert all(stamp[key] for key in ("commit", "command", "configuration", "machine"))
    assert stamp["seed"] == stamp["configuration"]["seed"]
    assert stamp["configuration"]["quick"] is False


def test_the_results_page_and_the_table_of_the_readme_are_what_the_result_files_say() -> None:
    assert TEXTS["docs/results.md"] == render_page(RESULTS, FINDINGS, load_ages()), f"renew it by `{COMMAND}`"
    assert TEXTS["README.md"] == with_table(TEXTS["README.md"], RESULTS, FINDINGS), f"renew it by `{COMMAND}`"
