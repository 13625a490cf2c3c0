"""`--set stages.STEP.key=value`: what it replaces, what it sets aside, and what it cannot mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dpa.balance.options import BY_STRATEGY, AdaptiveOptions
from dpa.config import JobFile, load, parse
from dpa.errors import ConfigError

JOB = """\
stages:
  lines:
    read: {format: records, records: [{word: to, n: 1}]}
  counts:
    from: lines
    key_by: word
    reduce: count
    write: out/counts
    balance:
      strategy: halving
      tau: 0.5
      check_seconds: 7
  top:
    from: counts
    key_by: null
    top_k: {k: 3, by: count}
    grouping: {kind: consistent, epsilon: 0.5}
"""


@pytest.fixture
def job_file(tmp_path: Path):
    """Loads the job with options."""

    def loaded(*overrides: str) -> JobFile:
        path = tmp_path / "job.yaml"
        path.write_text(JOB, encoding="utf-8")
        return load(path, overrides)

    return loaded


@pytest.mark.parametrize("options", [["output.path=out/x", "output.mode=overwrite"], ["output=out/x"]])
def test_the_output_of_a_graph_with_one_result_is_what_that_step_writes(tmp_path: Path, options: list[str]) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(JOB.replace("    write: out/counts\n", ""), encoding="utf-8")
    file = load(path, options)
    assert [name for name, step in file.stages.items() if step.write is not None] == ["top"]
    assert file.stages["top"].write[0].path == "out/x"
    assert str(file.error("stages.top.write.path", "is full")).startswith(f"--set {options[0]}: stages.top.write.path")


@pytest.mark.parametrize(
    ("overrides", "key", "value"),
    [
        (["stages.counts.parallelism=8"], "counts.parallelism", 8),
        (["stages.counts.write=out/x"], "counts.write.path", "out/x"),
        (["stages.counts.write.mode=overwrite"], "counts.write.path", "out/counts"),
        (["stages.counts.write.mode=overwrite"], "counts.write.mode", "overwrite"),
        (["stages.counts.reduce.use=sum", "stages.counts.reduce.args.column=n"], "counts.reduce.args", {"column": "n"}),
        (["stages.counts.reduce.args.column=n"], "counts.reduce.use", "count"),
        (["stages.counts.key_by=[word, n]"], "counts.key_by", ("word", "n")),
        (["stages.counts.balance.check_seconds=9"], "counts.balance.check_seconds", 9),
        (["stages.lines.read.records=[a]"], "lines.read.records", ["a"]),
        (["stages.all={from: lines, key_by: null, reduce: count}"], "all.key_by", ()),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_an_option_replaces_what_the_file_says_of_a_step(job_file, overrides: list[str], key: str, value: Any) -> None:
    step, *parts = key.split(".")
    found: Any = job_file(*overrides).config.stages[step]
    for part in parts:
        [found] = found if isinstance(found, list) else [found]
        found = getattr(found, part)
    assert found == value


@pytest.mark.parametrize("strategy", ["none", "adaptive"])
def test_an_option_sets_aside_what_belongs_to_another_strategy_of_the_step(job_file, tmp_path, strategy: str) -> None:
    option = f"stages.counts.balance.strategy={strategy}"
    file = job_file(option)
    kept = {"check_seconds": 7} if strategy == "adaptive" else {}
    assert file.config.stages["counts"].balance == BY_STRATEGY[strategy](**kept)
    lost = {"none": [(11, "tau"), (12, "check_seconds")], "adaptive": [(11, "tau")]}[strategy]
    assert list(file.set_aside) == [
        f"{tmp_path}/job.yaml:{line}: stages.counts.balance.{key}: set aside, as --set {option}: "
        f"`{strategy}` has no such key"
        for line, key in lost
    ]


def test_an_option_of_one_step_sets_nothing_aside_in_another(job_file) -> None:
    file = job_file("stages.top.grouping.kind=ring")
    assert file.config.stages["top"].grouping.kind == "ring"
    assert [note.split(": ")[1] for note in file.set_aside] == ["stages.top.grouping.epsilon"]
    assert file.config.stages["counts"].balance.strategy == "halving"


def test_a_step_that_balances_by_default_may_have_options_of_the_default(job_file) -> None:
    file = job_file("stages.counts.balance={min_gain: 1.0}")
    assert file.config.stages["counts"].balance == AdaptiveOptions(min_gain=1.0)


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (
            ["stages.count.parallelism=8"],
            "--set stages.count.parallelism=8: there is no step 'count'; did you mean 'counts'?",
        ),
        (
            ["stages.counts.paralelism=8"],
            "--set stages.counts.paralelism=8: unknown key; did you mean 'parallelism'?",
        ),
        (["stages.counts.from.first=x"], "--set stages.counts.from.first=x: 'from' is not a section"),
        (
            ["stages.counts.balance.strategy=none", "stages.counts.balance.tau=1"],
            "--set stages.counts.balance.tau=1: is a key of `halving`, `doubling`, but the "
            "strategy is `none` (--set stages.counts.balance.strategy=none)",
        ),
        (
            ["parallelism.reducers=8"],
            "--set parallelism.reducers=8: parallelism: belongs to a job of one mapper and one reducer; beside "
            "`stages` write `stages.STEP.parallelism`",
        ),
        (
            ["output.path=x"],
            "--set output.path=x: the job has 2 results: set stages.counts.write.path or stages.top.write.path",
        ),
        (["stages="], "--set stages=: Input should be a mapping of keys, not null"),
    ],
)
def test_an_option_that_fits_no_step_is_explained(job_file, overrides: list[str], line: str) -> None:
    with pytest.raises(ConfigError) as error:
        job_file(*overrides)
    assert str(error.value).startswith(line)


def test_the_resolved_job_is_the_same_job_again(job_file) -> None:
    config = job_file("stages.counts.write.mode=overwrite").config
    again = parse(config.resolved()).config
    assert again == config
    assert again.stages["top"].names_key, "a key that is null is said again"
