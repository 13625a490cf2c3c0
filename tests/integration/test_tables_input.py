import gzip
import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from differing_files import WIDENED

from dpa import Job
from dpa._util.owned import OwnedDirectory
from dpa.errors import ConfigError, TableError
from dpa.sources.files import FileTable
from dpa.sources.parquet import parquet_table
from dpa.sources.paths import local_directories
from dpa.sources.splits import total_rows
from dpa.spark import RowSample, Source, frame_of, input_table, load, sampled, schema_of, staged
from dpa.spark._exchange import in_spark
from dpa.spark._source import require_paths
from dpa.spark.comparison import Comparison, compare
from dpa.testing import LocalBackend

WORDS = ["the", "quick", "brown", "the"]


def rows(frame) -> list[tuple]:
    return sorted(tuple(row) for row in frame.collect())


def rows_of(splits) -> list[dict]:
    return [row for split in splits for batch in split.batches(1000) for row in batch.to_pylist()]


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    """The words in every file format, a tree of texts, and Parquet in partitioned directories."""
    base = tmp_path_factory.mktemp("files")
    table = pa.table({"word": WORDS, "n": [1, 2, 3, 4]})
    pq.write_table(table, base / "words.parquet")
    (base / "words.csv").write_text("word,n\n" + "".join(f"{word},{n}\n" for n, word in enumerate(WORDS, 1)))
    (base / "words.json").write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    for name in ("a.py", "deep/b.py", "deep/notes.md", "vendor/c.py"):
        (base / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (base / "tree" / name).write_text(f"import {name}\n")
    for year in (2023, 2024):
        (base / "years" / f"year={year}").mkdir(parents=True)
        pq.write_table(table, base / "years" / f"year={year}" / "words.parquet")
    (base / "nothing").mkdir()
    return base


@pytest.mark.parametrize("case", [case for case in WIDENED if not case.startswith(("times", "durations"))])
def test_spark_sees_the_rows_of_files_that_differ_as_tasks_do(spark, tmp_path, case) -> None:
    one, other, *_ = WIDENED[case]
    pq.write_table(pa.table({"n": one, "id": [0]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"id": [1], "n": other, "m": ["x"]}), tmp_path / "1.parquet")
    table = parquet_table([str(tmp_path)], allow_missing=True)
    with in_spark(spark, frame_of(spark, table)) as frame:
        assert compare(table.read(), frame.toArrow(), "id") == Comparison(True, 2)


def test_a_tree_of_texts_is_read_by_name_and_filtered_by_path(spark, files) -> None:
    source = Source(
        "text",
        "tree",
        glob="*.py",
        recursive=True,
        base=str(files),
        where="_metadata.file_path NOT LIKE '%/vendor/%'",
        select=["upper(value) AS line"],
    )
    assert rows(load(spark, source)) == [("IMPORT A.PY",), ("IMPORT DEEP/B.PY",)]


@pytest.mark.parametrize(
    ("exclude", "found"), [(["vendor"], ["A.PY", "DEEP/B.PY"]), (["ven*", "deep"], ["A.PY"]), (["absent"], None)]
)
def test_a_tree_is_read_without_the_directories_that_are_excluded(spark, files, exclude, found) -> None:
    source = Source("text", "tree", glob="*.py", recursive=True, exclude=exclude, base=str(files))
    whole = load(spark, replace(source, exclude=()))
    read = load(spark, replace(source, select=["upper(value) AS line"]))
    expected = [(f"IMPORT {name}",) for name in found] if found else sorted((line.upper(),) for (line,) in rows(whole))
    assert rows(read) == expected


def test_names_in_a_tree_are_no_globs_though_some_of_it_is_excluded(spark, tmp_path) -> None:
    for name in ("plain", "odd [a]{b}*", "left out"):
        (tmp_path / "tree" / name).mkdir(parents=True)
        (tmp_path / "tree" / name / "a.txt").write_text(name, encoding="utf-8")
    source = Source("text", str(tmp_path / "tree"), recursive=True, exclude=["left*"])
    assert rows(load(spark, source)) == [("odd [a]{b}*",), ("plain",)]


def test_what_is_the_name_of_something_is_no_glob(spark, tmp_path) -> None:
    names = ["a[1].csv", "a1.csv", "b{1,2}.csv", "b1.csv", "c*.csv", "cd.csv", "odd {x}/e^.csv"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{name}\n", encoding="utf-8")
    for name in names:
        source = Source("csv", name, base=str(tmp_path), options={"sep": "|"})
        require_paths(source)
        assert rows(load(spark, source)) == [(name,)], name
        assert rows(load(spark, replace(source, path=f"file:{tmp_path / name}"))) == [(name,)], name
        assert local_directories(name, str(tmp_path)) == [(tmp_path / name).parent.resolve()]
    globbed = rows(load(spark, Source("csv", "{b,c}[0-9d].csv", base=str(tmp_path))))
    assert globbed == [("b1.csv",), ("cd.csv",)]
    with pytest.raises(TableError, match=r"z\[1\]\.csv"):
        load(spark, Source("csv", "z[1].csv", base=str(tmp_path)))


def test_where_may_use_columns_that_select_drops(spark, files) -> None:
    source = Source("parquet", "words.parquet", base=str(files), where="n > 2", select=["word AS w"])
    assert rows(load(spark, source)) == [("brown",), ("the",)]


def test_a_query_names_its_views_and_leaves_none_behind(spark, files) -> None:
    source = Source(
        "sql",
        query="SELECT word, count(*) AS n FROM words JOIN years USING (word, n) GROUP BY word",
        views={"words": Source("parquet", "words.parquet"), "years": Source("parquet", ["years"])},
        base=str(files),
    )
    assert rows(load(spark, source)) == [("brown", 2), ("quick", 2), ("the", 4)]
    assert not spark.catalog.tableExists("words")


def test_a_database_is_read_through_jdbc(spark, files) -> None:
    options = {"url": "jdbc:derby:memory:words;create=true", "dbtable": "words"}
    spark.read.parquet(str(files / "words.parquet")).write.format("jdbc").options(**options).mode("overwrite").save()
    frame = load(spark, Source("jdbc", options=options, where="n < 3", select=["word", "n"]))
    assert rows(frame) == [("quick", 2), ("the", 1)]


def test_a_catalog_table_is_read_by_name(spark, files) -> None:
    spark.read.parquet(str(files / "words.parquet")).write.mode("overwrite").saveAsTable("word_table")
    try:
        assert load(spark, Source("table", table="word_table")).count() == 4
    finally:
        spark.sql("DROP TABLE word_table")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (Source("parquet", "/none/such"), r"parquet files at /none/such: Path does not exist: file:/none/such"),
        (Source("csv", "nothing"), r"csv files at .*/nothing: Unable to infer schema"),
        (Source("parquet", "words.csv"), r"parquet files at .*words\.csv: .*is not a Parquet file"),
        (Source("json", None), r"format 'json' needs a path"),
        (
            Source("parquet", "words.parquet", where="m > 1"),
            r"`where`: m > 1: .*`m` cannot be .*columns are word, n\)$",
        ),
        (
            Source("parquet", "words.parquet", where="n >"),
            r"`where`: n >: Syntax error at or near end of input \(line 1",
        ),
        (Source("parquet", "words.parquet", select=["upper(wrd) AS w"]), r"`select`: upper\(wrd\) AS w: .*columns are"),
        (
            Source("sql", query="SELECT * FROM t", views={"words": Source("parquet", "words.parquet")}),
            r"the views are words",
        ),
        (
            Source("sql", query="SELECT 1", views={"a": Source("parquet", "gone.parquet")}),
            r"gone\.parquet: Path does not",
        ),
        (Source("table", table="none"), r"the table 'none': The table or view `none` cannot be found"),
        (Source("jdbc", options={"url": "jdbc:nosql:x", "dbtable": "t"}), r"JDBC jdbc:nosql:x: No suitable driver"),
    ],
)
def test_a_wrong_input_is_explained_in_a_line(spark, files, capfd, source, message) -> None:
    with pytest.raises(TableError, match=message) as error:
        load(spark, Source(**{**vars(source), "base": str(files)}))
    assert "\n" not in str(error.value)
    assert capfd.readouterr() == ("", "")


@pytest.fixture(scope="module")
def skewed(spark):
    """20,000 rows in four partitions: half of them hot, 200 null, the rest spread over 97 values."""
    words = "CASE WHEN id % 2 = 0 THEN 'hot' WHEN id % 100 = 99 THEN null ELSE concat('w', id % 97) END"
    return spark.range(0, 20_000, 1, 4).selectExpr("id", f"{words} AS word").cache()


@pytest.mark.parametrize("by", [None, "word"])
def test_a_sample_is_the_same_for_the_same_seed_and_another_for_another(skewed, by) -> None:
    first, again, other = (rows(sampled(skewed, RowSample(0.1, by, seed)).select("id")) for seed in (1, 1, 2))
    assert first == again != other
    assert 1_500 < len(first) < 2_500


def test_a_stratified_sample_keeps_the_share_of_every_value_null_too(skewed) -> None:
    whole = Counter(row.word for row in skewed.collect())
    drawn = sampled(skewed, RowSample(0.1, "word", seed=5))
    assert drawn.columns == skewed.columns
    for word, count in Counter(row.word for row in drawn.collect()).items():
        assert abs(count - 0.1 * whole[word]) <= 4, "at most one row off in each partition"


def test_the_rows_of_a_stratified_sample_have_equal_chances(spark) -> None:
    frame = spark.range(0, 3_000, 1, 1).selectExpr("id % 3 AS place", "id DIV 3 AS word")
    drawn = Counter(row.place for row in sampled(frame, RowSample(0.5, "word")).collect())
    assert all(400 <= drawn[place] <= 600 for place in range(3)), "about half of a thousand threes, wherever they lie"


def test_a_sample_of_everything_is_everything_and_one_by_a_missing_column_or_of_no_share_is_refused(skewed) -> None:
    assert sampled(skewed, RowSample(1.0, "word")).count() == 20_000
    with pytest.raises(TableError, match="sample: the input has no column 'wrd'; did you mean 'word'"):
        sampled(skewed, RowSample(0.1, "wrd"))
    with pytest.raises(TableError, match="must be above 0"):
        sampled(skewed, RowSample(0.0))


def no_spark():
    raise AssertionError("Spark is not needed here")


def test_parquet_that_is_wanted_as_it_is_is_read_in_place_without_spark(files) -> None:
    source = Source("parquet", "words.parquet", base=str(files))
    with input_table(no_spark, source) as table:
        assert table.paths == [str(files / "words.parquet")]
        assert table.rows == 4
    assert schema_of(no_spark, source).names == ["word", "n"]


def test_everything_else_is_staged_for_as_long_as_it_is_needed(spark, files, tmp_path) -> None:
    source = Source("csv", "words.csv", options={"header": "true"}, base=str(files), where="n != 2")
    with input_table(lambda: spark, source, stage_dir=str(tmp_path / "stage")) as table:
        splits = replace(table, columns=("word",), dictionary=("word",)).splits(1_000)
        assert rows_of(splits) == [{"word": "the"}, {"word": "brown"}, {"word": "the"}]
        assert spark.read.parquet(*table.paths).count() == table.rows == 3
    assert list((tmp_path / "stage").iterdir()) == []


def test_a_partitioned_directory_keeps_the_columns_of_its_names(spark, files) -> None:
    source = Source("parquet", "years", base=str(files))
    assert schema_of(lambda: spark, source).names == ["word", "n", "year"]
    with input_table(lambda: spark, source) as table:
        assert Counter(row["year"] for row in rows_of(table.splits(10))) == {2023: 4, 2024: 4}


def test_bytes_that_are_no_text_are_replaced_when_staged(spark, tmp_path) -> None:
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9\n")
    with input_table(lambda: spark, Source("text", "latin.txt", base=str(tmp_path))) as table:
        assert rows_of(table.splits(10)) == [{"value": "caf\ufffd"}]


def test_large_text_is_read_in_place_with_the_lines_that_spark_finds(spark, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("dpa.sources.lines._LARGE_BYTES", 0)
    monkeypatch.setattr("dpa.sources.lines._TEXT_SPLIT_BYTES", 5)
    for module in ("lines", "records"):
        monkeypatch.setattr(f"dpa.sources.{module}.PIECE_BYTES", 2)
    parts = [
        b"\n",
        b"\r",
        b"\r\n",
        b"a",
        b"bb",
        "\u00e9".encode(),
        "\u2028".encode(),
        b"\xff",
        b"\xe2\x82",
        b"\0",
        b"\x85",
    ]
    draw = random.Random(0)
    for number in range(300):
        content = b"".join(draw.choices(parts, k=draw.randint(0, 12)))
        (tmp_path / f"{number:03}.txt").write_bytes([b"", b"\xef\xbb\xbf"][number % 5 == 0] + content)
    source = Source("text", str(tmp_path))
    with input_table(None, source) as table:
        found = rows_of(table.poll(3).splits)
        assert schema_of(None, source) == table.schema
        expected = frame_of(spark, table).collect()
    assert Counter(row["value"] for row in found) == Counter(row["value"] for row in expected)
    assert len(found) > 600
    with input_table(lambda: spark, source, stage_dir=str(tmp_path / "stage")) as table:
        assert isinstance(table, FileTable)  # that mappers on other machines see
        assert Counter(row["value"] for row in rows_of(table.splits(9))) == Counter(row["value"] for row in found)
    for other in (replace(source, where="value > ''"), replace(source, options={"lineSep": "a"})):
        with input_table(lambda: spark, other) as table:
            assert isinstance(table, FileTable)


def test_a_job_that_reads_text_in_place_needs_no_spark(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("dpa.sources.lines._LARGE_BYTES", 0)
    monkeypatch.setattr("dpa.driver.inputs.spark_session", None)
    (tmp_path / "words.txt").write_text("".join(f"{word}\n" for word in WORDS))
    job = Job(name="words", input={"format": "text", "path": str(tmp_path / "words.txt")}, key="value", reducer="count")
    result = job.run(backend=LocalBackend())
    assert {row["value"]: row["count"] for row in result.table().to_pylist()} == Counter(WORDS)


def test_staged_row_groups_are_as_small_as_splits_are_wanted(spark, tmp_path) -> None:
    frame = spark.range(0, 10_000, 1, 2)
    with staged(frame, str(tmp_path), row_group_rows=1_000) as table:
        splits = table.splits(1_000)
        assert max(split.rows for split in splits) <= 1_000
        assert total_rows(splits) == 10_000


def test_a_stage_that_is_a_uri_is_removed_too(spark, tmp_path) -> None:
    with staged(spark.range(3), (tmp_path / "stage").as_uri()) as table:
        assert len(rows_of(table.splits(10))) == 3
    assert list((tmp_path / "stage").iterdir()) == []


def test_what_a_killed_process_staged_is_removed_by_the_next_that_stages_there(spark, tmp_path) -> None:
    left = OwnedDirectory.make(tmp_path, "dpa-stage-")
    (left.path / "data").mkdir()
    left.release()  # as a process that is killed leaves it
    with staged(spark.range(3), str(tmp_path)) as first, staged(spark.range(3), str(tmp_path)) as second:
        assert not left.path.exists()
        assert (first.rows, len(rows_of(second.splits(10)))) == (3, 3)
    assert list(tmp_path.iterdir()) == []


def test_a_stage_directory_that_cannot_be_made_is_explained(spark, tmp_path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(TableError, match=r"staging the input at .*/file: .*exists"),
        staged(spark.range(3), f"{tmp_path}/file"),
    ):
        pass


def test_no_rows_can_be_staged_and_have_columns(spark, tmp_path) -> None:
    with staged(spark.range(10).where("id < 0"), str(tmp_path)) as table:
        assert (table.schema.names, table.rows, table.splits(10)) == (["id"], 0, [])


def test_a_missing_column_is_found_before_anything_is_staged(spark, files, monkeypatch) -> None:
    monkeypatch.setattr("dpa.spark._stage._staged", lambda *_, **__: pytest.fail("it was staged"))
    source = {"format": "csv", "path": str(files / "words.csv"), "options": {"header": "true"}}
    for wanted in ({"key": "wrd", "value": []}, {"key": "word", "value": "m"}):
        with pytest.raises(ConfigError, match=r"(key|value): the input has no column '\w+'; it has word"):
            Job(input=source, reducer="count", **wanted).run(backend=LocalBackend())


def test_a_stage_that_fails_is_explained_and_removed_as_is_one_whose_job_fails(spark, tmp_path) -> None:
    with pytest.raises(ZeroDivisionError), staged(spark.range(3), str(tmp_path)):
        raise ZeroDivisionError
    frame = spark.range(10).selectExpr("assert_true(id < 5, 'an id is too great')")
    with pytest.raises(TableError, match=r"^staging the input: an id is too great$"), staged(frame, str(tmp_path)):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", ["csv", "text", "sql"])
def test_a_truncated_file_that_spark_reads_is_named_and_so_is_the_input(spark, tmp_path, form) -> None:
    whole = gzip.compress("".join(f"word,{number}\n" for number in range(100_000)).encode())
    (tmp_path / "good.gz").write_bytes(whole)
    (tmp_path / "cut off.gz").write_bytes(whole[: len(whole) // 2])
    source = Source(form, "*.gz", base=str(tmp_path))
    name = rf"{form} files at {tmp_path}/\*\.gz"
    if form == "sql":
        name, source = "the query", Source(form, query="SELECT * FROM t", views={"t": Source("csv", str(tmp_path))})
    message = rf"^staging {name} in {tmp_path}/stage: {tmp_path}/cut off\.gz cannot be read: Unexpected end of input"
    with (
        pytest.raises(TableError, match=message) as error,
        input_table(lambda: spark, source, stage_dir=str(tmp_path / "stage")),
    ):
        pass
    assert "\n" not in str(error.value)


def test_reading_and_staging_leave_the_settings_of_the_session_as_they_were_and_instants_keep_their_zone(
    spark, files: Path, tmp_path: Path
) -> None:
    names = ("spark.sql.sources.parallelPartitionDiscovery.threshold", "spark.sql.parquet.outputTimestampType")
    before = [spark.conf.get(name) for name in names]
    with staged(load(spark, Source("text", str(files / "tree"), recursive=True)), str(files)):
        pass
    with staged(spark.sql("SELECT timestamp '2024-01-01 12:00:00' AS t"), str(tmp_path)) as table:
        assert table.schema.field("t").type == pa.timestamp("us", "UTC")
    assert [spark.conf.get(name) for name in names] == before
