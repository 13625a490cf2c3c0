"""Sections whose keys depend on `grouping.kind` and `balance.strategy`: what applies, what is refused or set aside."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from dpa.balance.options import BY_STRATEGY, AdaptiveOptions, BalanceOptions, HalvingOptions
from dpa.config import JobFile, json_schema, load, parse
from dpa.config.variants import VARIANTS, Variants
from dpa.errors import ConfigError
from dpa.routing.groupings.options import BY_KIND, ConsistentOptions, GroupingOptions, KeyOptions

HALVING = """\
balance:
  strategy: halving
  tau: 0.5
  check_seconds: 7
"""
EVERY = [(variants, name) for variants in VARIANTS.values() for name in variants.classes]
every_variant = pytest.mark.parametrize(("variants", "name"), EVERY, ids=[name for _, name in EVERY])


@pytest.fixture
def job_file(tmp_path: Path):
    """Writes a job file and loads it."""

    def loaded(text: str, *overrides: str) -> JobFile:
        path = tmp_path / "job.yaml"
        path.write_text(text, encoding="utf-8")
        return load(path, overrides)

    return loaded


# --- what applies


@every_variant
def test_a_section_is_the_options_themselves(variants: Variants, name: str) -> None:
    options = variants.classes[name]()
    sections: list[Any] = [name, {variants.by: name}, options, dataclasses.asdict(options)]
    for section in sections:
        assert getattr(parse({variants.section: section}).config, variants.section) == options


@every_variant
def test_options_come_back_from_the_resolved_configuration(variants: Variants, name: str) -> None:
    config = parse({variants.section: name}).config
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


def test_values_of_options_are_not_converted() -> None:
    with pytest.raises(ConfigError, match=r'balance.initial_tokens: Input should be a valid integer, not "4"'):
        parse({"balance": {"initial_tokens": "4"}})


def test_options_given_as_an_object_are_checked_too() -> None:
    with pytest.raises(ConfigError, match=r"balance.min_gain: Input should be greater than or equal to 0, not -1"):
        parse({"balance": AdaptiveOptions(min_gain=-1)})
    with pytest.raises(ConfigError, match=r"grouping.epsilon: Input should be greater than 0, not 0"):
        parse({"grouping": ConsistentOptions(epsilon=0)})


# --- what is refused, and why


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "grouping: {kind: key, virtual_workers: 3}",
            "job.yaml:1: grouping.virtual_workers: is a key of `consistent`, but the kind is `key` (DIR/job.yaml:1)",
        ),
        (
            "balance:\n  tau: 1\n",
            "job.yaml:2: balance.tau: is a key of `halving`, `doubling`, but the strategy is `adaptive` (by default)",
        ),
        (
            "grouping:\n  kind: key\nbalance:\n  min_gain: 1\n",
            "job.yaml:4: balance.min_gain: is a key of `adaptive`, but the strategy is `none` (with this grouping, "
            "DIR/job.yaml:2)",
        ),
        (
            "balance: {strategy: halving, min_gian: 1}",
            "job.yaml:1: balance.min_gian: unknown key; did you mean 'min_gain'? (known here: act_on_old_reports,",
        ),
        (
            "balance: [halving]",
            'job.yaml:1: balance: Input should be a text or a mapping of keys, not ["halving"]',
        ),
        ("grouping: {kind: [key]}", "job.yaml:1: grouping.kind: Input should be 'ring', 'key',"),
    ],
)
def test_a_key_that_does_not_apply_is_refused_with_what_it_belongs_to(
    job_file, tmp_path: Path, text: str, line: str
) -> None:
    with pytest.raises(ConfigError) as error:
        job_file(text)
    assert str(error.value).startswith(f"{tmp_path}/{line.replace('DIR', str(tmp_path))}")


def test_a_job_in_python_has_no_place_to_name() -> None:
    with pytest.raises(ConfigError) as error:
        parse({"balance": {"strategy": "none", "tau": 1.0}})
    assert str(error.value) == "job: balance.tau: is a key of `halving`, `doubling`, but the strategy is `none`"


# --- keys that have gone


# --- what an option sets aside


def test_an_option_that_changes_the_strategy_sets_aside_what_belongs_to_the_old_one(job_file, tmp_path: Path) -> None:
    file = job_file(HALVING, "balance.strategy=adaptive")
    assert file.config.balance == AdaptiveOptions(check_seconds=7)
    why = "set aside, as --set balance.strategy=adaptive: `adaptive` has no such key"
    assert file.set_aside == (f"{tmp_path}/job.yaml:3: balance.tau: {why}",)


@pytest.mark.parametrize(
    ("text", "overrides", "grouping", "balance"),
    [
        (HALVING, ["balance.strategy=doubling"], BY_KIND["ring"](), BY_STRATEGY["doubling"](tau=0.5, check_seconds=7)),
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


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (
            ["balance.strategy=none", "balance.tau=1"],
            "--set balance.tau=1: is a key of `halving`, `doubling`, but the strategy is `none` "
            "(--set balance.strategy=none)",
        ),
        (
            ["balance={strategy: none, tau: 1}"],
            "--set balance={strategy: none, tau: 1}: balance.tau: is a key of `halving`, `doubling`, but the strategy "
            "is `none` (--set balance={strategy: none, tau: 1})",
        ),
        (["balance.strategy=nine"], "--set balance.strategy=nine: Input should be 'none',"),
    ],
)
def test_what_options_say_is_never_set_aside(job_file, overrides: list[str], line: str) -> None:
    with pytest.raises(ConfigError) as error:
        job_file(HALVING, *overrides)
    assert str(error.value).startswith(line)


def test_a_key_that_nothing_knows_is_refused_whatever_the_options_say(job_file, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        job_file(HALVING.replace("tau", "tua"), "balance.strategy=none")
    assert str(error.value).startswith(
        f"{tmp_path}/job.yaml:3: balance.tua: unknown key; did you mean 'tau'? (known here: h"
    )
