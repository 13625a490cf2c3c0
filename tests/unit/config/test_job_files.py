"""Job files: what they may say, overrides, placeholders; every error says where it is and what would be right."""

import json
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from dpa.config import ExecutorConfig, ReducerConfig, json_schema, load, parse
from dpa.driver.spec import JobSpec
from dpa.errors import ConfigError

CONFIGS = sorted((Path(__file__).parents[3] / "configs").rglob("*.yaml"))
SMALL = """\
name: small
input:
  format: csv
  path: words.csv
key: word
reducer: count
balance:
  strategy: halving
  tau: 0.5
"""

EDITORS = jsonschema.Draft202012Validator(json_schema())
"""Does not check the schema each time: a test of its own does."""


def explained(call: Any, *arguments: Any) -> list[str]:
    with pytest.raises(ConfigError) as error:
        call(*arguments)
    return [
        line[max(line.rfind("/") + 1, 0) :] if "job.yaml" in line else line for line in str(error.value).splitlines()
    ]


def test_a_job_file_is_read_without_the_source_of_its_sections() -> None:
    refuse = "import inspect; inspect.findsource = None"  # pydantic would, for descriptions that only editors need
    read = "from dpa.config import parse; parse({'name': 'small', 'input': {'path': 'a.csv'}, 'key': 'word'})"
    subprocess.run([sys.executable, "-c", f"{refuse}\n{read}"], check=True)


@pytest.mark.parametrize("path", CONFIGS, ids=[path.stem for path in CONFIGS])
def test_every_configuration_fits_the_schema_of_editors_and_its_executors_are_found(path: Path, monkeypatch) -> None:
    EDITORS.validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    monkeypatch.setattr(sys, "path", [*sys.path])
    spec = JobSpec(load(path))
    assert all(spec.input_of(source)[1] is not None for source in spec.sources)
    assert spec.results
    assert all(
        step.receiver.can_merge or not step.balance.moves_keys or step.config.consistency == "migrate"
        for step in spec.steps
    )


def test_the_schema_is_valid_and_describes_every_key() -> None:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    json.dumps(schema)
    for section in (schema, *schema["$defs"].values()):
        assert section["additionalProperties"] is False
        assert all("description" in of_key or "$ref" in str(of_key) for of_key in section["properties"].values())


def test_what_is_not_said_has_a_default(job_file, tmp_path: Path) -> None:
    file = job_file(SMALL)
    config = file.config
    assert (config.balance.tau, config.balance.max_rounds, config.parallelism.reducers) == (0.5, 4, 4)
    assert (config.mapper, config.value, config.output[0].path, config.reference) == (None, None, None, None)
    assert job_file("").config.input is None
    assert (file.directory, parse({}).directory) == (tmp_path, Path.cwd()), "where relative paths start"


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("key: a", "a"),
        ("key: [a]", "a"),
        ("key: [a, b]", ("a", "b")),
        ("value: x", ["x"]),
        ("value: [x, y]", ["x", "y"]),
        ("value: []", []),
        ("mapper: jobs.wordcount:words", ExecutorConfig(use="jobs.wordcount:words")),
        ("mapper: {use: a:B, args: {n: 3}}", ExecutorConfig(use="a:B", args={"n": 3})),
        ("reducer: count", ReducerConfig(use="count")),
        ("reducer: {use: sum, args: {column: x}}", ReducerConfig(use="sum", args={"column": "x"})),
        ("reducer: {agg: {n: count(*)}}", ReducerConfig(agg={"n": "count(*)"})),
    ],
)
def test_keys_values_and_executors_may_be_said_in_several_ways(job_file, said: str, meant: Any) -> None:
    config = job_file(said).config
    assert getattr(config, said.partition(":")[0]) == meant
    again = parse(config.model_dump(mode="json", by_alias=True), origin="again").config
    assert again == config, "as the resolved configuration writes it"


def test_options_of_spark_may_be_true_false_or_numbers_and_of_drivers_and_of_any_case(job_file) -> None:
    config = job_file(
        "input: {format: csv, path: x, options: {header: true, maxColumns: 5, samplingRatio: 0.5, sep: ','}}\n"
        "spark: {conf: {spark.ui.enabled: false, spark.sql.shuffle.partitions: 4}}\n"
    ).config
    assert config.input.options == {"header": "true", "maxColumns": "5", "samplingRatio": "0.5", "sep": ","}
    views = "input: {format: sql, query: q, views: {t: {format: csv, path: x, options: {header: false}}}}"
    assert job_file(views).config.input.views["t"].options == {"header": "false"}
    assert config.spark.conf == {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "4"}
    options = "{HEADER: true, Delimiter: ';', parquet.block.size: 5}"
    found = job_file(f"input: {{format: csv, path: x, options: {options}}}").config.input
    assert found.options == {"HEADER": "true", "Delimiter": ";", "parquet.block.size": "5"}


def test_placeholders_are_replaced_at_any_depth(job_file, monkeypatch) -> None:
    monkeypatch.setenv("DATA", "/data")
    said = "input: {format: csv, path: ['${python.stdlib}/x', '${env.DATA}/${env.DATA}'], options: {a: '${env.DATA}'}}"
    read = job_file(said).config.input
    assert read.path == [f"{sysconfig.get_paths()['stdlib']}/x", "/data//data"]
    assert read.options == {"a": "/data"}


@pytest.mark.parametrize(
    ("placeholder", "message"),
    [
        ("${env.NO_SUCH_VARIABLE}", "the environment variable NO_SUCH_VARIABLE is not set"),
        ("${python.home}", "${python.home} is unknown; use ${python.stdlib} or ${env.NAME}"),
        ("${}", "${} is unknown"),
    ],
)
def test_a_placeholder_without_a_meaning_is_refused(job_file, placeholder: str, message: str) -> None:
    [line] = explained(job_file, f"name: '{placeholder}'")
    assert message in line and line.startswith("job.yaml")


@pytest.mark.parametrize(
    ("overrides", "key", "value"),
    [
        (["balance.strategy=none"], "balance.strategy", "none"),
        (["balance.tau=1"], "balance.tau", 1.0),
        (["balance=doubling"], "balance.strategy", "doubling"),
        (["balance=none", "balance.hash_seed=5"], "balance.hash_seed", 5),
        (["parallelism.reducers=7"], "parallelism.reducers", 7),
        (["sample.fraction=0.1"], "sample.fraction", 0.1),
        (["reducer.use=sum"], "reducer.use", "sum"),
        (["reducer.use=sum", "reducer.args.column=x"], "reducer.args", {"column": "x"}),
        (["grouping=key", "grouping.kind=consistent"], "grouping.kind", "consistent"),
        (["grouping=consistent", "grouping.virtual_workers=7"], "grouping.kind", "consistent"),
        (["spark.conf={a.b: 'c'}"], "spark.conf", {"a.b": "c"}),
        (["value=[x, y]"], "value", ["x", "y"]),
        (["name=a", "name=b"], "name", "b"),
        (["output.path=out/a=b"], "output.path", "out/a=b"),
        (["balance.report_seconds="], "balance.report_seconds", None),
        (["sample=", "sample.fraction=0.1"], "sample.fraction", 0.1),
        (
            ["input=a.csv", "input.in_place=true", "input.time=at", "input.time.out_of_order=2s"],
            "input.time.column",
            "at",
        ),
        (["reference=auto", "reference.tolerance=0.1"], "reference.sql", "auto"),
        (["output=out/x.csv", "output.publish=table", "output.publish.every=2s"], "output.publish.mode", "table"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_overrides_replace_what_the_file_says(job_file, overrides: list[str], key: str, value: Any) -> None:
    found: Any = job_file(SMALL, *overrides).config
    for part in key.split("."):
        [found] = found if isinstance(found, list) else [found]
        found = getattr(found, part)
    assert found == value


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("balance.strategy", "--set balance.strategy: write it as section.key=value"),
        ('spark.conf."a.b=3', """--set spark.conf."a.b=3: write it as section.key=value"""),
        ("=3", "--set =3: write it as section.key=value"),
        ("balance..tau=3", "--set balance..tau=3: write it as section.key=value"),
        ("name.first=x", "--set name.first=x: 'name' is not a section"),
        ("name=[", "--set name=[: not valid YAML: expected the node content"),
        ("balance.tua=3", "--set balance.tua=3: unknown key; did you mean 'tau'?"),
        ("balance.tau=high", '--set balance.tau=high: Input should be a valid number, not "high"'),
        (
            "balance={horizon: x}",
            '--set balance={horizon: x}: balance.horizon: Input should be a valid number, not "x"',
        ),
        ("sample.fraction=2", "--set sample.fraction=2: Input should be less than or equal to 1"),
        ("sample.by=x", "--set sample.by=x: sample.fraction: is needed here"),
        (
            "balance.initial_tokens=3",
            "job.yaml:7 and --set balance.initial_tokens=3: balance: halving needs a power of two",
        ),
        (f"value={'x' * 300}:", f"--set value={'x' * 194}...: "),
    ],
)
def test_a_wrong_override_is_explained(job_file, override: str, message: str) -> None:
    [line, *_] = explained(job_file, SMALL, override)
    assert line.startswith(message)


def test_a_part_with_dots_of_its_own_is_quoted(job_file) -> None:
    file = job_file(SMALL, 'spark.conf."spark.driver.memory"=4g', 'input.options."a=b.c"="=.="')
    assert file.config.spark.conf == {"spark.driver.memory": "4g"}
    assert file.config.input.options["a=b.c"] == "=.="
    [line] = explained(job_file, SMALL, 'spark.conf."spark.driver.memory"=[]')
    assert line.startswith('--set spark.conf."spark.driver.memory"=[]: spark.conf.spark.driver.memory: Input should be')


def test_later_errors_find_the_line_of_a_key_or_of_its_section_or_the_option_that_overrides_it(job_file) -> None:
    file = job_file(SMALL, "reducer=sum", "input.path=other.csv")
    assert str(file.error("reducer", "is odd")) == "--set reducer=sum: is odd"
    for key, place in [
        ("input", "job.yaml:2 and --set input.path=other.csv: "),
        ("input.format", "job.yaml:3: "),
        ("balance.tau", "job.yaml:9: "),
        ("balance.max_rounds", "job.yaml:7: "),
        ("mapper", "job.yaml: "),
    ]:
        assert str(file.error(key, "is odd")).endswith(f"{place}{key}: is odd")


ERRORS = [
    (
        "grouping: {kind: consistent, proportional: true, utilisation: busy}\n",
        "job.yaml:1: grouping: proportional needs utilisation 'demand': 'busy' does not measure by how much",
    ),
    (
        "grouping: {kind: consistent, theta_idle: 0.9, theta_busy: 0.9}\n",
        "job.yaml:1: grouping: theta_idle (0.9) must be below theta_busy",
    ),
    ("name: x\nkey: []", "job.yaml:2: key: a key is the name of a column, or a list of names, not []"),
    ("key: [a, 5]", 'job.yaml:1: key: a key is the name of a column, or a list of names, not ["a", 5]'),
    ("key: 5", "job.yaml:1: key: a key is the name of a column, or a list of names, not 5"),
    ("key: [a, b, a]", "job.yaml:1: key: the column 'a' is named more than once"),
    ("nam: x\n", "job.yaml:1: nam: unknown key; did you mean 'name'? (known here: balance, checkpoint, combiner,"),
    (
        SMALL + "  treshold: 1\n",
        "job.yaml:10: balance.treshold: unknown key (known here: act_on_old_reports, check_seconds, forwarding,",
    ),
    ("limits: {batch_records: 5, in_flight_records: 4}", "job.yaml:1: limits: batch_records (5) must not exceed"),
    ("limits: {queue_seconds: 0}", "job.yaml:1: limits.queue_seconds: Input should be greater than 0"),
    ("limits: {queue_seconds: .inf}", "job.yaml:1: limits.queue_seconds: Input should be a finite number"),
    ("limits: {in_flight_mb: 0}", "job.yaml:1: limits.in_flight_mb: Input should be greater than or equal to 1"),
    (
        "parallelism: {reducers: 2}\ntesting:\n  slow_factor: [1, 0.5]\n",
        "job.yaml:3: testing.slow_factor.1: Input should be greater than or equal to 1, not 0.5",
    ),
    ("parallelism:\n  mappers: '2'\n", 'job.yaml:2: parallelism.mappers: Input should be a valid integer, not "2"'),
    ("balance: 5\n", "job.yaml:1: balance: Input should be a text or a mapping of keys, not 5"),
    ("reducer: 5\n", "job.yaml:1: reducer: Input should be a text or a mapping of keys (agg, args, use), not 5"),
    ("reducer: {}\n", "job.yaml:1: reducer: give `use` or `agg`, one of both"),
    ("reducer: {use: count, agg: {n: a}}\n", "job.yaml:1: reducer: give `use` or `agg`, one of both"),
    ("spark: {conf: 5}\n", "job.yaml:1: spark.conf: Input should be a mapping of keys, not 5"),
    ("combiner: 1\n", "job.yaml:1: combiner: Input should be 'auto' or a valid boolean, not 1"),
    ("name: a b\n", "job.yaml:1: name: the name of a job has ASCII letters, digits"),
    (
        "balance:\n  strategy: halfing\n",
        "job.yaml:2: balance.strategy: Input should be 'none', 'halving', 'doubling' or 'adaptive', not \"halfing\"; "
        "did you mean 'halving'?",
    ),
    (
        "balance: {strategy: halving, initial_tokens: 12}",
        "job.yaml:1: balance: halving needs a power of two as initial_tokens, not 12",
    ),
    ("balance: {token_format: '{node}'}", "job.yaml:1: balance: token_format must contain {node} and {token}"),
    ("balance: {token_format: '{node}{token}'}", "job.yaml:1: balance: token_format"),
    ("key: a\nname: x\nkey: b\n", "job.yaml:3: key: stands here again, first on line 1"),
    ("Name: x\n", "job.yaml:1: Name: unknown key; did you mean 'name'?"),
    (
        "input:\n  format: csv\n  path: x\n  options:\n    header: [true]\n",
        "job.yaml:5: input.options.header: Input should be a valid string, not [true]",
    ),
    ("balance: {token_format: '{node}-{token}-{zone}'}", "job.yaml:1: balance: token_format must contain"),
    ("balance:\n", "job.yaml:1: balance: Input should be"),
    ("input: {format: csv}", "job.yaml:1: input: format 'csv' needs the key 'path'"),
    ("input: {format: sql}", "job.yaml:1: input: format 'sql' needs the key 'query'"),
    ("input: {format: text, path: a, exclude: [b]}", "job.yaml:1: input: `exclude` names sub-directories"),
    ("input: {format: records, records: [a], where: x}", "job.yaml:1: input.where: is a key of the format `parquet`"),
    (
        "input:\n  format: csv\n  path: x\n  rate: 5\n",
        "job.yaml:4: input.rate: is a key of the format `generated`, but the format is `csv`",
    ),
    ("input: {format: cvs, rows: 5}", "job.yaml:1: input.format: Input should be 'parquet', 'csv',"),
    ("reference: atuo", "job.yaml:1: reference: 'atuo' is no query: write `auto`, or SQL such as `SELECT"),
    ("reference: {sql: a, function: b}", "job.yaml:1: reference: give `sql` or `function`, not both"),
    ("input:\n  format: csv\n  path: 5\n", "job.yaml:3: input.path: "),
    ("- a\n- b\n", "job.yaml: a job file is a mapping of keys, not list"),
    (
        "key: value\n  reducer: count\n",
        "job.yaml:2:10: not valid YAML: indent this key like its neighbours, or quote a",
    ),
    ("input:\nformat: csv\n", "job.yaml:2: format: unknown key; indent it if it belongs to `input`, which is empty"),
    ("input:\n    rate: 5\n  rows: 5\n", "job.yaml:3:3: not valid YAML: this line is indented like none above it"),
    ("rows: 5\nkey:value\nseed: 1\n", "job.yaml:2:1: not valid YAML: this is no `key: value`; indent it if it"),
    ("key: a\nname: 'x\nrows: 5\n", "job.yaml:2:7: not valid YAML: this quote is not closed"),
    ("input: {format: kafka, header: true}", "job.yaml:1: input.header: unknown key (known here: allow_missing_col"),
    (
        "input: {format: csv, header: true}",
        "job.yaml:1: input.header: unknown key; as an option of the format, it stands in `options: {header: ...}`",
    ),
    (" key: value\nrows: 5\n", "job.yaml:2:1: not valid YAML: this line is indented less than the first one"),
    (
        "input:\n  format: csv\n  path: x\n  options: {headr: true}\n",
        "job.yaml:1: input: Spark's reader of the format `csv` has no option 'headr'; did you mean 'header'?",
    ),
    (
        "input: {format: sql, query: q, views: {v: {format: json, path: x, options: {multiline: true, Mod: a}}}}",
        "job.yaml:1: input.views.v: Spark's reader of the format `json` has no option 'Mod'; did you mean 'mode'?",
    ),
    ("spark: {conf: {a: ${env.PW}}}", "within {} and [] a placeholder stands between quotes: '${env.NAME}'"),
    ("stages:\n  c:\n    group_by: k", "job.yaml:3: stages.c.group_by: unknown key; write `key_by` and `agg`"),
    ("stages: {c: {where: a > 1}}", "job.yaml:1: stages.c.where: unknown key; write `filter`"),
    ("stages: {c: {join: {with: b, on: k}}}", "job.yaml:1: stages.c.join.on: unknown key; write `key_by`"),
    ("input: 5", "job.yaml:1: input: Input should be a text or a mapping of keys (allow_missing_columns, args,"),
    ("python_path: [${env.PW}]", "within {} and [] a placeholder stands between quotes: '${env.NAME}'"),
]


@pytest.mark.parametrize(("text", "line"), ERRORS, ids=[line.split(": ")[1] for _, line in ERRORS])
def test_an_error_names_file_line_and_key_and_what_would_be_right(job_file, text: str, line: str) -> None:
    lines = explained(job_file, text)
    assert any(found.startswith(line) for found in lines), lines


def test_every_problem_has_a_line_of_its_own_whatever_options_say(job_file) -> None:
    lines = explained(job_file, "nam: x\nseed: y\nbalance:\n  min_gain: -1\n")
    assert sorted(line.split(": ")[:2] for line in lines) == [
        ["job.yaml:1", "nam"],
        ["job.yaml:2", "seed"],
        ["job.yaml:4", "balance.min_gain"],
    ]
    [line] = explained(job_file, SMALL.replace("tau:", "tua:"), "balance.strategy=none")
    assert line.startswith("job.yaml:9: balance.tua: unknown key")
    [line, *_] = explained(parse, {"balance": {"strategy": "halving", "tua": 1}})
    assert line.startswith("job: balance.tua: unknown key; did you mean 'tau'?")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    missing, binary = tmp_path / "none.yaml", tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    for path, why in ((missing, "it is not in"), (binary, "it is not UTF-8"), (tmp_path, "it is a directory")):
        with pytest.raises(ConfigError, match=f"{path.name}: cannot read the job file: {why}"):
            load(path)


@pytest.mark.parametrize("given", ["configs/words.yaml", "configs/word", "config/word.yaml", "word.yaml", "wrod.yaml"])
def test_a_file_that_is_not_there_is_looked_for_with_a_near_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "word.yaml").touch()
    (tmp_path / "configs" / "words.yaml").symlink_to(tmp_path / "nowhere.yaml")
    why = f"it is not in {(tmp_path / given).parent}; did you mean configs/word.yaml?"
    with pytest.raises(ConfigError, match=f"^{given}: cannot read the job file: {re.escape(why)}$"):
        load(given)
