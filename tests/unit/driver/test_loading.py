"""From names in a job file to executors: where modules are looked up, and what is said of those that are not there."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from builders import Total

from dpa._given import as_mapper, as_reducer
from dpa.aggregates import READY_MADE, Count, TopK
from dpa.config import JobFile, load, parse
from dpa.driver._loading import actors_path, named, reference_of, search_path
from dpa.driver._steps import fitting
from dpa.errors import ConfigError
from dpa.executors import FunctionBatchMapper, FunctionMapper, FunctionReducer

MODULE = """
from dpa import Mapper, Reducer, batch_mapper

def by_word(record):
    yield record["word"], 1

@batch_mapper
def same(batch):
    return batch

def add(left, right):
    return left + right

class Split(Mapper):
    def __init__(self, separator=" "):
        if not separator:
            raise ValueError("separator must not be empty")
        if separator == "exit":
            raise SystemExit(3)
        self.separator = separator

    def map(self, record):
        return [(word, 1) for word in record["line"].split(self.separator)]

class Holder:
    nested = add

number = 5
_hidden = 6
"""
BROKEN = {
    "needy_job": "import no_such_package_at_all",
    "dividing_job": "1 / 0",
    "torn_job": "def (",
    "exiting_job": "import sys; sys.exit(7)",
    "refusing_job": "raise SystemExit('no licence')",
}
"""Modules that cannot be imported."""


@pytest.fixture(autouse=True)
def own_modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Modules and paths that a test brings in are gone after it."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield
    for name in [name for name in sys.modules if name.endswith("_job")]:
        del sys.modules[name]


@pytest.fixture
def job_file(tmp_path: Path):
    """Writes a job file beside a module `words_job`, and loads it."""
    for name, text in {"words_job": MODULE, **BROKEN}.items():
        (tmp_path / f"{name}.py").write_text(text)

    def loaded(text: str) -> JobFile:
        (tmp_path / "job.yaml").write_text(text)
        return load(tmp_path / "job.yaml")

    return loaded


def mapper_of(file: JobFile) -> Any:
    return fitting(file, {}, "mapper", file.config.mapper, as_mapper)


def reducer_of(file: JobFile) -> Any:
    return fitting(file, {}, "reducer", file.config.reducer, as_reducer)


def reference_in(file: JobFile) -> Any:
    return reference_of(file, "reference", file.config.reference, ["mapper"])


def message_of(call: Any, *arguments: Any) -> str:
    with pytest.raises(ConfigError) as error:
        call(*arguments)
    return str(error.value)


def test_an_executor_beside_the_job_file_or_installed_is_found_and_a_class_gets_its_arguments(job_file) -> None:
    assert type(mapper_of(job_file("mapper: words_job:by_word"))) is FunctionMapper
    assert type(mapper_of(job_file("mapper: words_job:same"))) is FunctionBatchMapper
    assert type(mapper_of(job_file("mapper: words_job:Split"))).__name__ == "Split"
    mapper = mapper_of(job_file("mapper: {use: words_job:Split, args: {separator: ','}}"))
    assert list(mapper.map({"line": "a,b"})) == [("a", 1), ("b", 1)]
    for name in ("add", "Holder.nested"):
        assert isinstance(reducer_of(job_file(f"reducer: words_job:{name}")), FunctionReducer)
    assert isinstance(reducer_of(parse({"reducer": "builders:Total"})), Total)
    assert isinstance(reducer_of(parse({"reducer": "dpa.aggregates:Count"})), Count)
    top = reducer_of(parse({"reducer": {"use": "top_k", "args": {"k": 3}}}))
    assert isinstance(top, TopK) and top.k == 3
    assert reference_in(job_file("reference: {function: 'words_job:by_word'}")).__name__ == "by_word", "not called"
    assert reference_in(job_file("reference: {sql: 'SELECT 1'}")) is None


@pytest.mark.parametrize("name", READY_MADE)
def test_a_ready_made_reducer_needs_no_module(name: str) -> None:
    assert type(reducer_of(parse({"reducer": name}))) is READY_MADE[name]


def test_python_path_starts_at_the_job_file_and_comes_first_also_before_that_of_another_job_and_in_actors(
    job_file, tmp_path: Path
) -> None:
    package = tmp_path / "lib" / "deep"
    package.mkdir(parents=True)
    (package / "words_job.py").write_text("def by_word(record):\n    return 'the one in lib/deep'\n")
    file = job_file("python_path: [lib/deep]\nmapper: words_job:by_word")
    assert search_path(file) == (str(package), str(tmp_path), str(Path.cwd()))
    assert mapper_of(file).function({}) == "the one in lib/deep"
    for name in ("one", "other", "one"):
        (tmp_path / name).mkdir(exist_ok=True)
        mapper_of(job_file(f"python_path: [{name}]\nmapper: words_job:by_word"))
        assert sys.path[0] == str(tmp_path / name)
    file = job_file("name: x")
    paths = actors_path(file)
    assert paths[: len(search_path(file))] == search_path(file)
    assert set(filter(None, sys.path)) <= set(paths)
    assert len(set(paths)) == len(paths)


@pytest.mark.parametrize("name", ["words_job", "words_job:", ":by_word", ""])
def test_a_name_without_module_or_attribute_is_refused(job_file, name: str) -> None:
    message = message_of(named, job_file(f"\nmapper: '{name}'"), "mapper", name)
    assert message.endswith(f"job.yaml:2: mapper: {name!r} should be `package.module:Name`")


MESSAGES = """
mapper: word_job:by_word
    1: mapper: there is no module 'word_job'; looked in ...DIR... and the installed packages
mapper: needy_job:f
    1: mapper: there is no module 'no_such_package_at_all' (needed by 'needy_job')
mapper: dividing_job:f
    1: mapper: the module 'dividing_job' cannot be imported: ZeroDivisionError
mapper: torn_job:f
    1: mapper: the module 'torn_job' cannot be imported: SyntaxError
mapper: exiting_job:f
    1: mapper: the module 'exiting_job' cannot be imported: SystemExit(7)
mapper: refusing_job:f
    1: mapper: the module 'refusing_job' cannot be imported: SystemExit('no licence')
mapper: words_job:by_wrd
    1: mapper: the module 'words_job' has no 'by_wrd'; did you mean 'by_word'?
mapper: words_job:nothing_like_it
    1: mapper: the module 'words_job' has no 'nothing_like_it'; it has Holder, Mapper, Reducer, Split, add, batch_mapper
mapper: words_job:number
    1: mapper: 5 is no mapper: give a dpa.Mapper
mapper: words_job:Holder
    1: mapper: ... is no mapper: give a dpa.Mapper
mapper: {use: words_job:Split, args: {seperator: x}}
    1: mapper.args: words_job:Split cannot be made of {'seperator': 'x'}: ...
mapper: {use: words_job:Split, args: {separator: ''}}
    1: mapper.args: ... separator must not be empty
mapper: {use: words_job:Split, args: {separator: exit}}
    1: mapper.args: ... cannot be made of {'separator': 'exit'}: SystemExit(3)
mapper: {use: words_job:by_word, args: {n: 1}}
    1: mapper.args: ...'words_job:by_word' is not a class, so it takes no arguments
reducer: cout
    there is no ready-made reducer 'cout'; the ready-made ones are count, sum, min, max, mean...
    your own is `package.module:Name`
reducer: words_job.add
    your own is `words_job:add`
reducer: words_job:number
    1: reducer: 5 is no reducer: give a dpa.Reducer
reducer: words_job:Split
    1: reducer: ... is no reducer: give a dpa.Reducer
reference: {function: 'words_job:number'}
    1: reference.function: 'words_job:number' is int, not a function of a DataFrame
reference: {function: 'words_job:add'}
    1: reference.function: words_job:add(left, right) cannot be called with one argument
reference: {function: 'words_job:ad'}
    1: reference.function: ...did you mean 'add'
"""
"""A job file, and below it what is said of it, with `...` for what may be there too."""


@pytest.mark.parametrize("case", re.split(r"\n(?=\S)", MESSAGES.strip()))
def test_what_is_not_there_and_what_does_not_fit_is_explained(job_file, tmp_path: Path, case: str) -> None:
    text, *lines = case.split("\n    ")
    said = " ".join(lines)
    find = {"mapper": mapper_of, "reducer": reducer_of, "reference": reference_in}[text.partition(":")[0]]
    message = message_of(find, job_file(text))
    wanted = re.escape(said.replace("DIR", str(tmp_path))).replace(r"\.\.\.", ".*").replace(r".*\ ", ".* ?")
    assert re.search(f"job.yaml:{wanted}" if said[0].isdigit() else wanted, message), message
    assert "_hidden" not in message
