"""Files that tasks read in place, beside what Spark reads of them."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dpa import Flow
from dpa.aggregates import Sum
from dpa.spark import Source, load
from dpa.spark._stage import _in_place
from dpa.testing import LocalBackend

DAY = "2024-01-02"

DIFFERENCES: dict[str, tuple[str, str, list[Any], list[Any]]] = {
    "numbers": ("csv", "n\n1\n2.5\n007\n1e3\n", [1.0, 2.5, 7.0, 1000.0], [1.0, 2.5, 7.0, 1000.0]),
    "a blank line": ("csv", "n\n1\n\n2\n", [1, None, 2], [1, 2]),
    "a line end in quotes": ("csv", 'n\n"a\nb"\n', ["a\nb"], ["a", 'b"']),
    "a date": ("csv", f"n\n{DAY}\n", [DAY], [DAY]),
    "an integer and a text": ("json", '{"n":1}\n{"n":"x"}\n', ["1", "x"], ["1", "x"]),
    "fields that are missing": ("json", '{"n":1}\n{}\n', [1, None], [1, None]),
    "blank lines of JSON": ("json", '\n{"n":1}\n\n', [1], [1]),
    "nested": ("json", '{"n":{"a":[1]}}\n{"n":{"b":1}}\n', [{"a": [1], "b": None}, {"a": None, "b": 1}], None),
}


@pytest.mark.parametrize("case", DIFFERENCES)
def test_what_is_read_in_place_is_what_spark_reads_but_for_what_is_documented(spark, tmp_path: Path, case: str) -> None:
    form, content, here, there = DIFFERENCES[case]
    (tmp_path / f"a.{form}").write_text(content)
    options = {"header": "true", "inferSchema": "true"} if form == "csv" else {}
    source = Source(form, str(tmp_path), in_place=True, options=options)
    table = _in_place(source)
    assert table is not None and table.read()["n"].to_pylist() == here
    frame = load(spark, source)
    assert there is None or sorted(map(str, frame.toArrow()["n"].to_pylist())) == sorted(map(str, there))
    kinds = dict(frame.dtypes)
    assert (kinds["n"] == "date") == (case == "a date")


def test_a_flow_of_files_read_in_place_is_what_spark_computes(spark, tmp_path: Path) -> None:
    words = ["the", "quick", "brown", "fox"]
    for number in range(3):
        rows = [{"word": words[(row + number) % 4], "n": row} for row in range(1_000)]
        (tmp_path / f"{number}.csv").write_text("n,word\n" + "".join(f"{row['n']},{row['word']}\n" for row in rows))
        (tmp_path / f"{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        table = pa.table(
            {"word": pa.array([row["word"] for row in rows], pa.large_string() if number else pa.string())}
        )
        table = table.append_column("n", pa.array([row["n"] for row in rows], pa.int64() if number else pa.int32()))
        with pa.ipc.new_file(tmp_path / f"{number}.arrow", table.schema) as writer:
            writer.write_table(table, max_chunksize=100)
    flow = Flow("in_place", limits={"split_records": 500})
    csv = flow.read(tmp_path / "*.csv", name="csv", in_place=True)
    lines = flow.read(tmp_path / "*.jsonl", name="lines", in_place=True)
    arrow = flow.read(tmp_path / "*.arrow", name="arrow")
    summed = csv.union(lines, arrow).key_by("word").reduce(Sum("n"), parallelism=2)
    selects = " UNION ALL ".join(f"SELECT word, n FROM {name}" for name in ("csv", "lines", "arrow"))
    summed.reference(f"SELECT word, sum(n) AS n FROM ({selects}) GROUP BY word")
    result = flow.run(backend=LocalBackend()).check()
    assert sum(result.table()["n"].to_pylist()) == 9 * sum(range(1_000))
