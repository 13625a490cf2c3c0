"""Sections whose keys depend on `grouping.kind` and `balance.strategy`: what applies, what is refused or set aside.
Options of steps, and `resources`."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from dpa import Flow, Job
from dpa.balance.options import BY_STRATEGY, AdaptiveOptions, BalanceOptions, HalvingOptions
from dpa.config import json_schema, parse
from dpa.config.variants import VARIANTS, Variants
from dpa.errors import ConfigError
from dpa.protocol.wire.nodes import Resources
from dpa.report._plan_content import facts
from dpa.routing.groupings.options import BY_KIND, ConsistentOptions, GroupingOptions, KeyOptions

HALVING = """\
balance:
  strategy: halving
  tau: 0.5
  check_seconds: 7
"""
EVERY = [(variants, name) for variants in VARIANTS.values() for name in variants.classes]
every_variant = pytest.mark.parametrize(("variants", "name"), EVERY, ids=[name for _, name in EVERY])


@every_variant
def test_a_section_is_the_options_themselves_and_comes_back_from_the_resolved_configuration(
    variants: Variants, name: str
) -> None:
    options = variants.classes[name]()
    sections: list[Any] = [name, {variants.by: name}, options, dataclasses.asdict(options)]
    for section in sections:
        config = parse({variants.section: section}).config
        assert getattr(config, variants.section) == options
        assert parse(config.model_dump(mode="json", by_alias=True)).config == config


@every_variant
def test_every_key_is_of_its_own_variant_or_refused(variants: Variants, name: str) -> None:
    known = variants.keys_of(name)
    for other in variants.classes:
        for key in variants.keys_of(other):
            section = {variants.by: name, key: getattr(variants.classes[other](), key)}
            if key in known:
                continue
            with pytest.raises(ConfigError, match=rf"{variants.section}\.{key}: is a key of .*`{other}`.* `{name}`"):
                parse({variants.section: section})


@every_variant
def test_the_schema_describes_every_key_of_a_variant(variants: Variants, name: str) -> None:
    section = json_schema()["$defs"][variants.classes[name].__name__]
    assert list(section["properties"]) == [field.name for field in dataclasses.fields(variants.classes[name])]
    assert all(key["description"] for key in section["properties"].values())


@pytest.mark.parametrize(
    ("section", "fits"),
    [
        ({"grouping": "key"}, True),
        ({"grouping": {"kind": "consistent", "pooled": True}}, True),
        ({"grouping": {"kind": "key", "pooled": True}}, False),
        ({"grouping": {"pooled": True}}, False),
        ({"grouping": "cg"}, False),
        ({"balance": {"min_gain": 1.0}}, True),
        ({"balance": {"strategy": "halving", "min_gain": 1.0}}, False),
        ({"balance": {"strategy": "halving", "tau": -1}}, False),
    ],
)
def test_an_editor_finds_what_the_parser_finds(section: dict[str, Any], fits: bool) -> None:
    validator = jsonschema.Draft202012Validator(json_schema())
    assert validator.is_valid(section) == fits
    if fits:
        parse(section)
    else:
        with pytest.raises(ConfigError):
            parse(section)


@pytest.mark.parametrize(
    ("section", "why"),
    [
        ({"balance": {"initial_tokens": "4"}}, 'balance.initial_tokens: Input should be a valid integer, not "4"'),
        (
            {"balance": AdaptiveOptions(min_gain=-1)},
            "balance.min_gain: Input should be greater than or equal to 0, not -1",
        ),
        ({"grouping": ConsistentOptions(epsilon=0)}, "grouping.epsilon: Input should be greater than 0, not 0"),
        (
            {"balance": {"strategy": "none", "tau": 1.0}},
            "^job: balance.tau: is a key of `halving`, `doubling`, but the strategy is `none`$",
        ),
    ],
)
def test_values_of_options_are_checked_and_not_converted(section: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        parse(section)


NOT_APPLYING = """
grouping: {kind: key, virtual_workers: 3}
    1: grouping.virtual_workers: is a key of `consistent`, but the kind is `key` (DIR/job.yaml:1)
balance: {; tau: 1}
    2: balance.tau: is a key of `halving`, `doubling`, but the strategy is `adaptive` (by default)
grouping: {; kind: key}; balance: {; min_gain: 1}
    4: balance.min_gain: is a key of `adaptive`, but the strategy is `none` (with this grouping, DIR/job.yaml:2)
balance: {strategy: halving, min_gian: 1}
    1: balance.min_gian: unknown key; did you mean 'min_gain'? (known here: act_on_old_reports,
balance: [halving]
    1: balance: Input should be a text or a mapping of keys, not ["halving"]
grouping: {kind: [key]}
    1: grouping.kind: Input should be 'ring', 'key',
"""
"""Sections, in which `; ` begins a line, and below each what is said of it."""


@pytest.mark.parametrize("case", re.split(r"\n(?=\S)", NOT_APPLYING.strip()))
def test_a_key_that_does_not_apply_is_refused_with_what_it_belongs_to(job_file, tmp_path: Path, case: str) -> None:
    text, said = case.split("\n    ")
    with pytest.raises(ConfigError) as error:
        job_file(text.replace("; ", "\n"))
    assert str(error.value).startswith(f"{tmp_path}/job.yaml:{said.replace('DIR', str(tmp_path))}")


@pytest.mark.parametrize(
    ("text", "overrides", "grouping", "balance"),
    [
        (HALVING, ["balance.strategy=doubling"], BY_KIND["ring"](), BY_STRATEGY["doubling"](tau=0.5, check_seconds=7)),
        (HALVING, ["balance.strategy=adaptive"], BY_KIND["ring"](), AdaptiveOptions(check_seconds=7)),
        (HALVING, ["balance.strategy=none"], BY_KIND["ring"](), BY_STRATEGY["none"]()),
        (HALVING, ["balance=adaptive"], BY_KIND["ring"](), AdaptiveOptions()),
        (HALVING, ["balance.tau=1"], BY_KIND["ring"](), HalvingOptions(tau=1.0, check_seconds=7)),
        ("balance: {min_gain: 1}", ["grouping=key"], KeyOptions(), BY_STRATEGY["none"]()),
        ("grouping: {kind: consistent, epsilon: 0.5}", ["grouping.kind=key"], KeyOptions(), BY_STRATEGY["none"]()),
    ],
)
def test_what_still_applies_stays(
    job_file, text: str, overrides: list[str], grouping: GroupingOptions, balance: BalanceOptions
) -> None:
    config = job_file(text, *overrides).config
    assert (config.grouping, config.balance) == (grouping, balance)


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


@pytest.mark.parametrize("options", [["output.path=out/x", "output.mode=overwrite"], ["output=out/x"]])
def test_the_output_of_a_graph_with_one_result_is_what_that_step_writes(job_file, options: list[str]) -> None:
    file = job_file(JOB.replace("    write: out/counts\n", ""), *options)
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
        (["stages.counts.balance={min_gain: 1.0}"], "counts.balance", AdaptiveOptions(min_gain=1.0)),
        (["stages.all={from: lines, key_by: null, reduce: count}"], "all.key_by", ()),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_an_option_replaces_what_the_file_says_of_a_step(job_file, overrides: list[str], key: str, value: Any) -> None:
    step, *parts = key.split(".")
    found: Any = job_file(JOB, *overrides).config.stages[step]
    for part in parts:
        [found] = found if isinstance(found, list) else [found]
        found = getattr(found, part)
    assert found == value


@pytest.mark.parametrize(
    ("strategy", "lost"), [("none", [(11, "tau"), (12, "check_seconds")]), ("adaptive", [(11, "tau")])]
)
def test_an_option_sets_aside_what_belongs_to_another_strategy_of_the_step(
    job_file, tmp_path: Path, strategy: str, lost: list[tuple[int, str]]
) -> None:
    option = f"stages.counts.balance.strategy={strategy}"
    file = job_file(JOB, option, "stages.top.grouping.kind=ring")
    kept = {"check_seconds": 7} if strategy == "adaptive" else {}
    assert file.config.stages["counts"].balance == BY_STRATEGY[strategy](**kept)
    assert file.config.stages["top"].grouping.kind == "ring"
    place = f"{tmp_path}/job.yaml"
    *of_balance, of_grouping = file.set_aside
    assert of_balance == [
        f"{place}:{line}: stages.counts.balance.{key}: set aside, as --set {option}: `{strategy}` has no such key"
        for line, key in lost
    ]
    assert of_grouping.split(": ")[1] == "stages.top.grouping.epsilon"
    job = job_file(HALVING, f"balance.strategy={strategy}")
    assert job.set_aside[0] == (
        f"{place}:3: balance.tau: set aside, as --set balance.strategy={strategy}: `{strategy}` has no such key"
    )


WRONG_OPTIONS = """
balance.strategy=none & balance.tau=1
    --set balance.tau=1: is a key of `halving`, `doubling`, but the strategy is `none` (--set balance.strategy=none)
balance={strategy: none, tau: 1}
    --set balance={strategy: none, tau: 1}: balance.tau: is a key of `halving`, `doubling`, but the strategy is `none`
    (--set balance={strategy: none, tau: 1})
balance.strategy=nine
    --set balance.strategy=nine: Input should be 'none',
stages.count.parallelism=8
    --set stages.count.parallelism=8: there is no step 'count'; did you mean 'counts'?
stages.counts.paralelism=8
    --set stages.counts.paralelism=8: unknown key; did you mean 'parallelism'?
stages.counts.from.first=x
    --set stages.counts.from.first=x: 'from' is not a section
stages.counts.balance.strategy=none & stages.counts.balance.tau=1
    --set stages.counts.balance.tau=1: is a key of `halving`, `doubling`, but the strategy is `none`
    (--set stages.counts.balance.strategy=none)
parallelism.reducers=8
    --set parallelism.reducers=8: parallelism: belongs to a job of one mapper and one reducer; beside `stages` write
    `stages.STEP.parallelism`
output.path=x
    --set output.path=x: the job has 2 results: set stages.counts.write.path or stages.top.write.path
stages=
    --set stages=: Input should be a mapping of keys, not null
"""
"""Options, and below them what is said: what they say is never set aside."""


@pytest.mark.parametrize("case", re.split(r"\n(?=\S)", WRONG_OPTIONS.strip()))
def test_options_that_fit_neither_each_other_nor_a_step_are_explained(job_file, case: str) -> None:
    options, *said = case.split("\n    ")
    with pytest.raises(ConfigError) as error:
        job_file(HALVING if options.startswith("balance") else JOB, *options.split(" & "))
    assert str(error.value).startswith(" ".join(said))


def test_the_resolved_job_is_the_same_job_again(job_file) -> None:
    config = job_file(JOB, "stages.counts.write.mode=overwrite").config
    again = parse(config.resolved()).config
    assert again == config
    assert again.stages["top"].names_key, "a key that is null is said again"


ROWS = [{"word": "tea"}, {"word": "ink"}]


def requested(**sections: Any) -> dict[str, Resources]:
    return dict(Job(input=ROWS, key="word", value=[], reducer="count", **sections).spec.demand.each)


def test_tasks_request_what_their_step_says_and_else_what_the_job_says_as_a_plan_shows() -> None:
    asked = requested(resources={"cpus": 1, "reducers": {"cpus": 2, "memory": "2GiB", "custom": {"GPU": 1}}})
    assert asked == {"mapper": Resources(1.0), "reducer": Resources(2.0, 2**31, {"GPU": 1.0})}
    assert requested() == {"mapper": Resources(), "reducer": Resources()}
    flow = Flow("words", resources={"cpus": 0.5})
    flow.read(ROWS, name="rows").key_by("word").reduce("count", name="counts", resources={"cpus": 2})
    asked = flow.job().spec.demand
    assert asked.each == {"rows": Resources(0.5), "counts": Resources(2.0)}
    assert asked.tasks == {"rows": 2, "counts": 4}
    flow = Flow("words", resources={"reducers": {"cpus": 2}})
    flow.read(ROWS, name="rows").key_by("word").reduce("count", name="counts")
    with pytest.raises(ConfigError, match="go without `stages`: give steps `resources`"):
        flow.job()
    resources = {"reducers": {"cpus": 1, "memory": "1536MiB", "custom": {"license": 2}}}
    job = Job(input=ROWS, key="word", value=[], reducer="count", resources=resources)
    forecast = job.forecast()
    said = {stage.name: next(facts(stage, forecast)) for stage in forecast.stages}
    assert said == {"mapper": "2 tasks", "reducer": "4 tasks x 1 CPU, 1.5 GiB of memory, 2 license"}


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ({"cpus": -1}, "greater than or equal to 0"),
        ({"memory": "4 apples"}, "could not interpret byte unit"),
        ({"custom": {"CPU": 1}}, "'CPU' is no resource of your own: use the keys `cpus` and `memory`"),
    ],
)
def test_what_cannot_be_requested_is_an_error_at_its_key(resources: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=rf"resources\.{next(iter(resources))}.*{message}"):
        requested(resources=resources)
