"""Job files of any bytes, and of any structure: each is a job, or an error that names the file and the key.

`HYPOTHESIS_PROFILE=fuzz` draws 10,000 of each kind.
"""

import copy
import datetime
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dpa.config import JobFile, json_schema, load, parse
from dpa.driver.spec import JobSpec
from dpa.errors import ConfigError

CONFIGS = sorted((Path(__file__).parents[3] / "configs").rglob("*.yaml"))
TEXTS = [path.read_bytes() for path in CONFIGS]
DOCUMENTS = [yaml.safe_load(text) for text in TEXTS]
LONGEST = 20_000
"""Characters of an error."""

several = settings(max_examples=max(80, settings().max_examples))


def a_job_or_an_error(path: Path) -> None:
    """Load a job file, and check what can be checked without its input."""
    try:
        JobSpec(load(path)).check()
    except ConfigError as error:
        assert str(path.parent) in str(error) and len(str(error)) < LONGEST


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dpa.config._errors.json_schema", cache(json_schema))  # hundreds of errors ask for the same one
        yield tmp_path_factory.mktemp("fuzz") / "job.yaml"


PIECES = st.sampled_from(
    b"""&a |*a|<<: |!!timestamp |!!binary |!!set |!!omap |!!int |!!float |!!bool |!!python/name:os.system |? |: |- |[|]
|{|}|>\n|"|'|\n|\t|%YAML 1.1\n|---\n|2001-99-99|1e400|0x|1:99|~|\xff|\x00|${env.X}|${|stages:\n""".split(b"|")
) | st.just(b"9" * 5000)


@given(st.data())
@several
def test_any_bytes_are_a_job_or_an_error(place: Path, data: st.DataObject) -> None:
    content = bytearray(data.draw(st.sampled_from(TEXTS) | st.binary(max_size=200)))
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(content)))
        content[at : at + data.draw(st.integers(0, 30))] = data.draw(PIECES | st.binary(max_size=4))
    place.write_bytes(content)
    a_job_or_an_error(place)


DAY = datetime.date(2026, 1, 2)
LEAVES = st.sampled_from([None, True, 0, -1, 10**400, 0.5, float("nan"), float("inf"), "", "count", "a.b", "x:y", DAY])
VALUES = st.recursive(
    LEAVES | st.text(max_size=5) | st.binary(max_size=3) | st.just("${env.NOWHERE}"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(LEAVES | st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, item in items for found in paths(item, (*path, key)))]


@given(st.data())
@several
def test_any_structure_is_a_job_or_an_error(place: Path, data: st.DataObject) -> None:
    document = copy.deepcopy(data.draw(st.sampled_from(DOCUMENTS)))
    for _ in range(data.draw(st.integers(1, 3))):
        *parents, last = data.draw(st.sampled_from(paths(document)[1:] or [("name",)]))
        section: Any = document
        for key in parents:
            section = section[key]
        match data.draw(st.integers(0, 3)):
            case 0:
                del section[last]
            case 1 if isinstance(section, dict):
                section[data.draw(st.sampled_from(["use", "args", "kind", 7, None]) | st.text(max_size=3))] = 1
            case 2 if isinstance(section[last], dict):
                section[last][data.draw(LEAVES)] = data.draw(VALUES)
            case _:
                section[last] = data.draw(VALUES)
        if not document:
            break
    place.write_text(yaml.safe_dump(document), encoding="utf-8")
    a_job_or_an_error(place)


def refused(text: str, tmp_path: Path) -> str:
    path = tmp_path / "job.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        load(path)
    return str(error.value).removeprefix(str(tmp_path) + "/")


@pytest.mark.parametrize("form", ["[{}]", "{{<<: [{}]}}", "{{? [{}] : 1}}"], ids=["lists", "merged", "keys"])
def test_aliases_that_multiply_a_document_are_refused(form: str, tmp_path: Path) -> None:
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{n}: &a{n} {form.format(', '.join([f'*a{n - 1}'] * 10))}" for n in range(1, 30)]
    said = refused("\n".join(lines), tmp_path)
    assert "this is more than 1,000,000 values, each as often as aliases repeat it" in said
    assert said.startswith("job.yaml:")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("name: &a [*a]", "job.yaml:1:7: not valid YAML: an alias stands inside of what it names"),
        ("name: " + "[" * 5000, "job.yaml: not valid YAML: it is nested too deeply: 100 levels are the most"),
        ("name: " + "[" * 120 + "]" * 120, "job.yaml:1:26: not valid YAML: this is nested too deeply"),
        (
            "name: x\nseed: 2001-99-99",
            "job.yaml:2:7: not valid YAML: '2001-99-99' is no timestamp; if it is text, write",
        ),
        ("seed: " + "9" * 5000, "job.yaml:1:7: not valid YAML: '9999"),
        ("%YAML 1." + "9" * 5000, "job.yaml: not valid YAML: Exceeds the limit"),
        ("stages: {a: {from: {2026-01-02: x}}}", "stages.a.from: name a step, or a list of steps, not {datetime.date"),
        ("a: b\nname: \x07", "job.yaml: not valid YAML: the character #x0007 on line 2"),
        ("a: b\nkey: {c: d\ne: f", "got ':' while parsing a flow mapping, which begins on line 2\n    e: f\n     ^"),
        ("seed: !!int ''", "job.yaml:1:7: not valid YAML: '' is no int"),
        ("#" * (16 * 2**20 + 1), "job.yaml: a job file has at most 16 MiB; put records in a file of data"),
        ("input: {format: csv, options: {password: [a, hunter22]}}", "input.options.password: Input should be a valid"),
    ],
)
def test_what_is_wrong_with_a_document_is_said_where_it_stands(text: str, why: str, tmp_path: Path) -> None:
    said = refused(text, tmp_path)
    assert why in said and "hunter22" not in said and "unicode string" not in said and len(said) < 600


def test_aliases_that_repeat_a_section_are_fine_and_so_are_keys_of_any_type_but_no_endless_file(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        "input: &in {format: csv, path: a.csv, options: &o {header: true}}\nreducer: {use: count, args: {}}"
    )
    assert isinstance(load(path, ["input.options={<<: {a: 1}}"]), JobFile)
    with pytest.raises(ConfigError):
        parse({"input": {"records": {DAY: {(1, 2): 3}}}, DAY: 1, None: 2})  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match="/dev/zero: a job file has at most 16 MiB"):
        load("/dev/zero")
