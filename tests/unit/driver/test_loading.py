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
    (tmp_path / "words_job.py").write_text(MODULE)

    def loaded(text: str) -> JobFile:
        (tmp_path / "job.yaml").write_text(text)
        return load(tmp_path / "job.yaml")

    return loaded


def mapper_of(file: JobFile) -> Any:
    return fitting(file, {}, "mapper", file.config.mapper, as_mapper)


def reducer_of(file: JobFile) -> Any:
    return fitting(file, {}, "reducer", file.config.reducer, as_reducer)


def message_of(call: Any, *arguments: Any) -> str:
    with pytest.raises(ConfigError) as error:
        call(*arguments)
    return str(error.value)


# --- what is found


@pytest.mark.parametrize(
    ("name", "made"), [("by_word", FunctionMapper), ("same", FunctionBatchMapper), ("Split", None)], ids=str
)
def test_a_mapper_beside_the_job_file_is_found(job_file, name: str, made: type | None) -> None:
    mapper = mapper_of(job_file(f"mapper: words_job:{name}"))
    assert type(mapper) is made if made else type(mapper).__name__ == name


def test_a_class_gets_its_arguments(job_file) -> None:
    mapper = mapper_of(job_file("mapper: {use: words_job:Split, args: {separator: ','}}"))
    assert list(mapper.map({"line": "a,b"})) == [("a", 1), ("b", 1)]


@pytest.mark.parametrize("name", READY_MADE)
def test_a_ready_made_reducer_needs_no_module(name: str) -> None:
    assert type(reducer_of(parse({"reducer": name}))) is READY_MADE[name]


def test_a_ready_made_reducer_takes_arguments_too() -> None:
    reducer = reducer_of(parse({"reducer": {"use": "top_k", "args": {"k": 3}}}))
    assert isinstance(reducer, TopK) and reducer.k == 3


@pytest.mark.parametrize("name", ["add", "Holder.nested"])
def test_a_function_even_within_a_class_is_a_reducer(job_file, name: str) -> None:
    assert isinstance(reducer_of(job_file(f"reducer: words_job:{name}")), FunctionReducer)


def test_installed_modules_are_found_too() -> None:
    assert isinstance(reducer_of(parse({"reducer": "builders:Total"})), Total)
    assert isinstance(reducer_of(parse({"reducer": "dpa.aggregates:Count"})), Count)


def test_python_path_starts_at_the_job_file_and_comes_first(job_file, tmp_path: Path) -> None:
    package = tmp_path / "lib" / "deep"
    package.mkdir(parents=True)
    (package / "words_job.py").write_text("def by_word(record):\n    return 'the one in lib/deep'\n")
    file = job_file("python_path: [lib/deep]\nmapper: words_job:by_word")
    assert search_path(file) == (str(package), str(tmp_path), str(Path.cwd()))
    assert mapper_of(file).function({}) == "the one in lib/deep"


def test_modules_of_a_job_come_before_those_of_a_job_between(job_file, tmp_path: Path) -> None:
    for name in ("one", "other", "one"):
        (tmp_path / name).mkdir(exist_ok=True)
        mapper_of(job_file(f"python_path: [{name}]\nmapper: words_job:by_word"))
        assert sys.path[0] == str(tmp_path / name)


def test_actors_look_where_this_process_does(job_file) -> None:
    file = job_file("name: x")
    paths = actors_path(file)
    assert paths[: len(search_path(file))] == search_path(file)
    assert set(filter(None, sys.path)) <= set(paths)
    assert len(set(paths)) == len(paths)


# --- what is not


@pytest.mark.parametrize("name", ["words_job", "words_job:", ":by_word", ""])
def test_a_name_without_module_or_attribute_is_refused(job_file, name: str) -> None:
    message = message_of(named, job_file(f"\nmapper: '{name}'"), "mapper", name)
    assert message.endswith(f"job.yaml:2: mapper: {name!r} should be `package.module:Name`")


def test_a_missing_module_is_named_with_where_it_was_looked_for(job_file, tmp_path: Path) -> None:
    message = message_of(mapper_of, job_file("mapper: word_job:by_word"))
    assert "job.yaml:1: mapper: there is no module 'word_job'; looked in" in message
    assert str(tmp_path) in message and "and the installed packages" in message


def test_a_module_that_needs_a_missing_one_is_told_apart(job_file, tmp_path: Path) -> None:
    (tmp_path / "needy_job.py").write_text("import no_such_package_at_all\n")
    message = message_of(mapper_of, job_file("mapper: needy_job:f"))
    assert "there is no module 'no_such_package_at_all' (needed by 'needy_job')" in message


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("def (", "SyntaxError"),
        ("import sys; sys.exit(7)", "SystemExit(7)"),
        ("raise SystemExit('no licence')", "SystemExit('no licence')"),
    ],
)
def test_a_module_that_cannot_be_imported_says_why(job_file, tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "broken_job.py").write_text(text)
    message = message_of(mapper_of, job_file("mapper: broken_job:f"))
    assert f"mapper: the module 'broken_job' cannot be imported: {reason}" in message


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("by_wrd", "did you mean 'by_word'?"),
        ("nothing_like_it", "it has Holder, Mapper, Reducer, Split, add, batch_mapper"),
    ],
)
def test_a_missing_name_comes_with_a_hint(job_file, name: str, hint: str) -> None:
    message = message_of(mapper_of, job_file(f"mapper: words_job:{name}"))
    assert f"mapper: the module 'words_job' has no {name!r}; {hint}" in message
    assert "_hidden" not in message


def test_an_unknown_ready_made_reducer_comes_with_those_there_are() -> None:
    message = message_of(reducer_of, parse({"reducer": "cout"}))
    assert "there is no ready-made reducer 'cout'; the ready-made ones are count, sum, min, max, mean" in message
    assert "your own is `package.module:Name`" in message


def test_a_job_without_a_reducer_is_told_what_there_is() -> None:
    file = parse({"input": {"format": "records", "records": []}})
    assert message_of(lambda: file.stages).startswith(
        "job: reducer: a job needs a reducer: `package.module:Name`, or one of count, sum"
    )


@pytest.mark.parametrize(
    ("section", "name", "message"),
    [
        ("mapper", "number", "mapper: 5 is no mapper: give a dpa.Mapper"),
        ("mapper", "Holder", "is no mapper: give a dpa.Mapper"),
        ("reducer", "number", "reducer: 5 is no reducer: give a dpa.Reducer"),
        ("reducer", "Split", "is no reducer: give a dpa.Reducer"),
    ],
)
def test_what_is_no_executor_is_refused(job_file, section: str, name: str, message: str) -> None:
    file = job_file(f"{section}: words_job:{name}")
    assert message in message_of(mapper_of if section == "mapper" else reducer_of, file)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("{use: words_job:Split, args: {seperator: x}}", "words_job:Split cannot be made of {'seperator': 'x'}: "),
        ("{use: words_job:Split, args: {separator: ''}}", "separator must not be empty"),
        ("{use: words_job:Split, args: {separator: exit}}", "cannot be made of {'separator': 'exit'}: SystemExit(3)"),
        ("{use: words_job:by_word, args: {n: 1}}", "'words_job:by_word' is not a class, so it takes no arguments"),
    ],
)
def test_arguments_that_do_not_fit_are_explained(job_file, said: str, message: str) -> None:
    found = message_of(mapper_of, job_file(f"mapper: {said}"))
    assert "job.yaml:1: mapper.args: " in found and message in found


def reference(file: JobFile) -> Any:
    return reference_of(file, "reference", file.config.reference, ["mapper"])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("words_job:number", "reference.function: 'words_job:number' is int, not a function of a DataFrame"),
        ("words_job:add", "reference.function: words_job:add(left, right) cannot be called with one argument"),
        ("words_job:ad", "did you mean 'add'"),
    ],
)
def test_a_reference_that_is_no_function_of_one_table_is_refused(job_file, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        reference(job_file(f"reference: {{function: '{name}'}}"))


def test_the_function_of_a_reference_is_found_but_not_called(job_file) -> None:
    assert reference(job_file("reference: {function: 'words_job:by_word'}")).__name__ == "by_word"
    assert reference(job_file("reference: {sql: 'SELECT 1'}")) is None
