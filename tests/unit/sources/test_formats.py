"""The format of an input is that of its files' endings, unless it is named."""

import gzip
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpa import Flow
from dpa.aggregates import Count
from dpa.config import parse
from dpa.config.inputs import InputConfig, misspelt
from dpa.errors import ConfigError, TableError
from dpa.sources.formats import format_found, format_of
from dpa.testing import LocalBackend
from experiments.s3_server import client, uri_of


def count(flow: Flow) -> dict[Any, int]:
    table = flow.run(backend=LocalBackend(), check=False).table()
    return dict(zip(*(table[name].to_pylist() for name in ("word", "count")), strict=True))


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("a.parquet", "parquet"),
        ("a.snappy.parquet", "parquet"),
        ("orders/*.csv", "csv"),
        ("s3://bucket/a/*.json?region=eu-west-1", "json"),
        ("file:///a%20b.jsonl", "json"),
        ("a.ndjson.zst", "json"),
        ("a.csv.gz", "csv"),
        ("a.csv.bz2", "csv"),
        ("A.CSV.GZ", "csv"),
        ("a.txt", "text"),
        ("a.parquet/", "parquet"),
        ("a.xlsx", None),
        ("a.gz", None),
        ("orders", None),
        ("orders/*", None),
    ],
)
def test_the_ending_of_a_path_says_its_format(path: str, form: str | None) -> None:
    assert format_of(path) == form


def test_an_ending_is_looked_at_before_anything_is_read_and_a_named_format_comes_first() -> None:
    assert InputConfig(path="no/such/*.parquet").format == "parquet"
    assert InputConfig(path=["a.json", "b.jsonl.gz"]).format == "json"
    assert InputConfig(path="logs", glob="*.ndjson").format == "json"
    assert InputConfig(path="a.csv", format="text").format == "text"
    assert InputConfig(path="orders").format is None
    assert InputConfig(path="a.csv").options == {"header": "true", "inferSchema": "true"}
    assert InputConfig(path="a.csv", options={"Header": False}).options == {"inferSchema": "true", "Header": "false"}
    assert InputConfig(path="a.csv", format="csv").options == {}


@pytest.mark.parametrize(
    "given",
    [
        {"path": "a.csv"},
        {"path": "a.csv", "in_place": True, "columns": {"word": "string"}},
        {"path": "a.feather", "allow_missing_columns": True},
        {"path": "words"},
    ],
)
def test_a_resolved_job_reads_the_same_input(given: dict[str, Any]) -> None:
    config = parse({"input": given, "reducer": "count"}).config
    assert parse(config.resolved()).config.input == config.input
    stages = parse({"stages": {"rows": {"read": given}}}).config
    assert parse(stages.resolved()).config.stages["rows"].read == config.input


def test_an_input_without_path_and_format_is_refused() -> None:
    with pytest.raises(ValueError, match="an input needs `format`, or a `path` whose ending shows it"):
        InputConfig()
    with pytest.raises(ValueError, match="`watch` needs `format`"):
        InputConfig(path="new.csv", watch={})


@pytest.mark.parametrize("as_given", [str, Path], ids=["text", "Path"])
@pytest.mark.parametrize("name", ["words", "words/*.parquet", "words/1.parquet", "words/*"])
def test_a_flow_reads_a_file_a_directory_and_a_glob(tmp_path: Path, name: str, as_given: Any) -> None:
    (tmp_path / "words").mkdir()
    pq.write_table(pa.table({"word": ["a", "b", "a"]}), tmp_path / "words" / "1.parquet")
    flow = Flow("paths")
    flow.read(as_given(tmp_path / name)).key_by("word").reduce(Count())
    assert count(flow) == {"a": 2, "b": 1}


def test_a_flow_reads_globs_of_object_storage(s3_port: int) -> None:
    prefix, table, sink = uuid4().hex, pa.table({"word": ["a", "b", "a"]}), pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    files = {
        "0.csv": b"word\na\nb\na\n",
        "1.csv.gz": gzip.compress(b"word\nb\n"),
        "2.feather": sink.getvalue().to_pybytes(),
    }
    for name, content in files.items():
        client(s3_port).put_object(Bucket="results", Key=f"{prefix}/{name}", Body=content)
    for glob, counts in (("*.feather", {"a": 2, "b": 1}), ("*.csv*", {"a": 2, "b": 2})):
        flow = Flow("objects")
        rows = flow.read(uri_of(s3_port, f"results/{prefix}/{glob}"), in_place=True)
        rows.key_by("word").reduce(Count())
        assert count(flow) == counts


def test_keys_of_an_input_are_given_beside_a_path(tmp_path: Path) -> None:
    (tmp_path / "deep" / "old").mkdir(parents=True)
    for place in ("a.pq", "deep/b.pq", "deep/c.other", "deep/old/d.pq"):
        pq.write_table(pa.table({"word": [place]}), tmp_path / place)
    flow = Flow("keys")
    rows = flow.read(tmp_path, format="parquet", glob="*.pq", recursive=True, exclude=["old"], parallelism=1)
    rows.key_by("word").reduce(Count())
    assert count(flow) == {"a.pq": 1, "deep/b.pq": 1}


def test_the_format_of_a_directory_is_that_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "year=2024").mkdir()
    for place in ("_SUCCESS", ".part.json", "year=2024/a.csv", "year=2024/b.csv.gz"):
        (tmp_path / place).touch()
    assert format_found([str(tmp_path)]) == "csv"
    found = InputConfig(path="year=2024").as_found(str(tmp_path))
    assert (found.format, found.options) == ("csv", {"header": "true", "inferSchema": "true"})
    given = InputConfig(path="year=2024", options={"multiLin": True})
    with pytest.raises(TableError, match=r"the files are csv: .* has no option 'multiLin'; did you mean 'multiLine'"):
        given.as_found(str(tmp_path))


def test_files_whose_format_is_unknown_or_of_several_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").touch()
    (tmp_path / "b.json").touch()
    with pytest.raises(TableError, match=r"of several formats, csv \(.*a\.csv\) and json \(.*b\.json\): name one"):
        format_found([str(tmp_path)])
    assert format_found([str(tmp_path)], glob="*.csv") == "csv"
    (tmp_path / "c.xlsx").touch()
    with pytest.raises(TableError, match=r"c\.xlsx: its ending is of no known format: name `format`, or files that"):
        format_found([str(tmp_path / "c.xlsx")])
    with pytest.raises(TableError, match=r"no such file or directory; did you mean 'a\.csv'"):
        format_found([str(tmp_path / "a.cvs")])
    for number in range(40):
        (tmp_path / f"log.part-{number}-of-many-with-a-long-name").touch()
    with pytest.raises(TableError, match=r"directory; did you mean 'log\.part-0-of-many-with-a-long-name'\?$"):
        format_found([str(tmp_path / "log")])
    assert not [*misspelt("jdbc", ["useCompression", "compress"])], "drivers of databases have their own"
    with pytest.raises(TableError, match="Spark alone lists it, so name its `format`"):
        format_found(["s3a://bucket/orders"])


def test_a_flow_names_the_input_whose_format_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "a.xlsx").touch()
    flow = Flow("unknown")
    flow.read(tmp_path / "a.xlsx").key_by("word").reduce(Count())
    with pytest.raises(ConfigError, match=r"stages\.read\.read: .*a\.xlsx: its ending is of no known format"):
        flow.run(backend=LocalBackend(), check=False)
