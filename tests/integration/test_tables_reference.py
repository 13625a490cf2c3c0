from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

from dpa.errors import TableError
from dpa.spark import _exchange as exchange
from dpa.spark import as_table, check_reference, compute, sample_rows, spark_loads
from dpa.spark._errors import as_table_error
from dpa.spark.comparison import compare

WORDS = pa.table({"word": ["a", "b", "a", None], "n": [1, 2, 3, 4]})
INPUT = {"input": WORDS}
COUNT = "SELECT word, sum(n) AS n FROM input GROUP BY word"


def test_a_function_of_a_frame_can_be_the_reference(spark) -> None:
    def longest(frame):
        from pyspark.sql.functions import udf

        return frame.select("n", udf(lambda word: len(word or ""), "int")("word").alias("length"))

    assert compute(spark, INPUT, function=longest).to_pydict() == {"n": [1, 2, 3, 4], "length": [1, 1, 1, 0]}


TRADES = pa.table({"symbol": ["a", "b", "a"], "size": [3, 4, 3]})
QUOTES = pa.table({"symbol": ["a", "b"], "price": [1.5, 2.5]})
MARKET = {"trades": TRADES, "my-quotes": QUOTES}
PAID = "SELECT symbol, size * price AS paid FROM trades JOIN `my-quotes` USING (symbol)"
ROWS = pa.table({"symbol": ["b", "a", "a"], "paid": [10.0, 4.5, 4.5]})


def test_a_query_sees_each_of_several_inputs_under_its_name(spark) -> None:
    given = {**MARKET, "trades": spark.createDataFrame(TRADES)}
    check_reference(spark, given, PAID, ())
    assert compare(compute(spark, given, sql=PAID), ROWS, ()).matches
    assert spark.catalog.listTables() == []


@pytest.mark.parametrize("name", ["trades", "input", "Input"])
def test_a_single_input_is_seen_under_its_name_and_as_input(spark, name) -> None:
    for view in ("input", name):
        check_reference(spark, {name: TRADES}, f"SELECT size FROM {view}", "size")
        assert compute(spark, {name: TRADES}, sql=f"SELECT size FROM {view}")["size"].to_pylist() == [3, 4, 3]


def test_several_inputs_are_keyword_arguments_of_a_function(spark) -> None:
    def paid(*, quotes, trades):
        joined = trades.join(quotes, "symbol")
        return joined.select("symbol", (joined["size"] * joined["price"]).alias("paid"))

    reference = compute(spark, {"trades": TRADES, "quotes": QUOTES}, function=paid)
    assert compare(reference, ROWS, ()).matches


@pytest.mark.parametrize(
    ("frames", "columns"),
    [
        (MARKET, "`trades` are symbol, size; of `my-quotes` are symbol, price"),
        ({"trades": TRADES}, "`input` and `trades` are symbol, size"),
    ],
    ids=["several inputs", "one input"],
)
def test_a_wrong_query_is_answered_with_the_columns_of_all_inputs(spark, frames, columns) -> None:
    for step in (lambda sql: check_reference(spark, frames, sql, "symbol"), lambda sql: compute(spark, frames, sql)):
        with pytest.raises(TableError, match=rf"`pric` cannot be resolved.*the columns of {columns}\)$"):
            step("SELECT symbol, pric FROM trades")


def test_no_view_is_left_behind_if_that_of_another_input_is_in_the_way(spark) -> None:
    spark.range(3).createTempView("quotes")
    try:
        with pytest.raises(TableError, match=r"the view 'quotes': .*already exists"):
            compute(spark, {"trades": TRADES, "quotes": QUOTES}, sql="SELECT 1")
        assert [table.name for table in spark.catalog.listTables()] == ["quotes"] and spark.table("quotes").count() == 3
    finally:
        spark.catalog.dropTempView("quotes")


def shouting(frame):
    raise KeyError("no such thing")


def asking(frame):
    raise ConnectionRefusedError("the price list does not answer")


def wandering(frame):
    return frame.select("nowhere")


def stumbling(frame):
    from pyspark.sql.functions import udf

    return frame.select(udf(lambda n: 1 // (n - n))("n"))


def counting(frame):
    return 3


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (
            {"sql": "SELECT wrd FROM input"},
            r"the reference query: .*`wrd` cannot be .*columns of `input` are word, n\)$",
        ),
        ({"sql": "SELECT 1 / (n - n) FROM input"}, r"the reference query: Division by zero"),
        ({"function": shouting}, r"the reference function shouting raised KeyError: 'no such thing'"),
        ({"function": asking}, r"the reference function asking raised ConnectionRefusedError: the price list does not"),
        ({"function": wandering}, r"the reference function wandering: .*`nowhere` cannot be resolved"),
        ({"function": stumbling}, r"the reference function stumbling: ZeroDivisionError: "),
        ({"function": counting}, r"the reference function counting must return a DataFrame, not int"),
        ({}, r"by `sql` or by `function`"),
        ({"sql": "SELECT 1", "function": counting}, r"give one of them"),
    ],
)
def test_a_wrong_reference_is_explained_in_a_line(spark, capfd, how, message) -> None:
    with pytest.raises(TableError, match=message) as error:
        compute(spark, INPUT, **how)
    assert "\n" not in str(error.value)
    assert capfd.readouterr() == ("", "")


def test_types_that_spark_does_not_have_are_refused(spark) -> None:
    with pytest.raises(TableError, match=r"handing the table `trades` in memory to Spark: .*time32"):
        compute(spark, {"trades": pa.table({"word": pa.array([1], pa.time32("s"))})}, sql=COUNT)


def test_unsigned_integers_and_uuids_in_memory_are_what_spark_makes_of_them(spark) -> None:
    uuids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([UUID(int=5).bytes], pa.binary(16)))
    table = pa.table(
        {"large": pa.array([2**64 - 1], pa.uint64()), "small": pa.array([2**32 - 1], pa.uint32()), "id": uuids}
    )
    (row,) = compute(spark, {"input": table}, sql="SELECT *, typeof(large) AS kind FROM input").to_pylist()
    assert row == {"large": 2**64 - 1, "small": 2**32 - 1, "id": str(UUID(int=5)), "kind": "decimal(20,0)"}


def test_a_spark_frame_can_be_an_input_in_memory(spark) -> None:
    assert as_table(spark.range(3)).to_pydict() == {"id": [0, 1, 2]}


def test_a_reference_larger_than_the_drivers_heap_takes_is_fetched(spark) -> None:
    rows = 2_000_000  # of 8 bytes, while this session's `spark.driver.maxResultSize` is 8 MiB
    assert compute(spark, {"input": spark.range(rows)}, sql="SELECT id FROM input").num_rows == rows


TYPES = {
    "integers": "id, CAST(id AS TINYINT) AS small, CAST(NULL AS INT) AS none",
    "fractions": "CAST(id AS DECIMAL(20, 3)) / 7 AS d, id / 3 AS r, CAST('NaN' AS FLOAT) AS nan",
    "text": "CAST(id AS STRING) AS s, CAST('Ω' AS BINARY) AS b, id > 1 AS big",
    "times": "DATE '2024-02-29' AS d, TIMESTAMP '1500-01-01 01:02:03.456789' AS t, TIMESTAMP_NTZ '2024-01-01' AS n",
    "nested": "array(id, NULL) AS a, map('k', id) AS m, named_struct('X', id, 'y', array(DATE '2024-01-01')) AS s",
    "names": "id AS `a b`, id + 1 AS `A b`, id + 2 AS `,;{}()=`, id + 3 AS `a b`",
    "nothing": "id, NULL AS nothing, array(NULL) AS nothings",
    "intervals": "id, INTERVAL '3' DAY AS i",
    "empty": "explode(filter(array(id), one -> one > 5)) AS id",
}


@pytest.mark.parametrize("columns", TYPES.values(), ids=TYPES)
def test_what_is_fetched_through_a_file_is_what_arrow_would_have_sent(spark, columns) -> None:
    frame = spark.sql(f"SELECT {columns} FROM range(3)")
    fetched, sent = exchange.fetched(frame, None, "the rows"), frame.toArrow()
    assert fetched.column_names == sent.column_names
    for mine, theirs in zip(fetched.columns, sent.columns, strict=True):
        found, expected = (pa.table({"row": range(len(column)), "value": column}) for column in (mine, theirs))
        assert compare(found, expected, "row").differences == ()


TEXT = pa.array(["a", None, "b"])
TABLES = {
    "plain": pa.table({"t": TEXT, "l": TEXT.cast(pa.large_string()), "i": pa.array([1, 2, None], pa.int8())}),
    "encoded": pa.table({"t": TEXT.dictionary_encode(), "d": pa.array([1, 2, 3], pa.date32())}),
    "decimals": pa.table({"d": pa.array([1, 2, None], pa.decimal128(20, 2)), "b": pa.array([b"", b"x", None])}),
    "moments": pa.table(
        {"n": pa.array([0, 1, 2], pa.timestamp("ns")), "z": pa.array([0, 1, 2], pa.timestamp("s", "CET"))}
    ),
    "nested": pa.table({"l": [[1], [], None], "n": pa.nulls(3)}),
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_a_large_table_in_memory_is_the_same_in_spark_as_a_small_one(spark, monkeypatch, table) -> None:
    with exchange.in_spark(spark, table) as frame:
        small = (frame.schema.simpleString(), frame.collect())
    monkeypatch.setattr(exchange, "_SMALL_BYTES", 0)
    with exchange.in_spark(spark, table) as frame:
        assert (frame.schema.simpleString(), frame.collect()) == small


def test_what_is_large_is_left_in_no_directory(spark, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(exchange, "_SMALL_BYTES", 0)
    compute(spark, INPUT, sql=COUNT, stage_dir=str(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("java.lang.OutOfMemoryError: Java heap space", True),
        ("Job aborted: Task 3 failed. TaskResultLost (result lost from block manager)", True),
        ("Division by zero", False),
    ],
)
def test_where_spark_ran_out_of_memory_the_message_says_what_to_set(text: str, remedy: bool) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(TableError) as error, as_table_error("the query"):
        raise PySparkException(text)
    assert ("`spark.conf: {spark.driver.memory: 4g}`" in str(error.value)) is remedy


KEYS = {
    "string": pa.array([*(f"user_{i}" for i in range(300)), "", "Ω", None]),
    "bigint": pa.array([*range(-150, 150), 2**62, -(2**62), None], pa.int64()),
    "int": pa.array([*range(300), None], pa.int32()),
    "binary": pa.array([*(bytes([i, 255 - i]) for i in range(200)), b"", None]),
    "null": pa.nulls(1),
    "date": pa.array([*range(300), None], pa.int32()).cast(pa.date32()),
    "decimal": pa.array([*range(300), None], pa.int32()).cast(pa.decimal128(12, 2)),
    "composite": pa.array([{"a": i // 20, "b": f"k{i}" if i % 20 else None} for i in range(300)]),
}


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize("partitions", [1, 7])
def test_the_baseline_is_where_a_shuffle_really_puts_the_records(spark, keys, partitions) -> None:
    records = np.arange(1, len(keys) + 1)
    columns = keys.flatten() if pa.types.is_struct(keys.type) else [keys]
    named = {
        f"k{number}": column.cast(pa.string()) if pa.types.is_null(column.type) else column
        for number, column in enumerate(columns)
    }
    frame = spark.createDataFrame(pa.table({**named, "records": records}))
    shuffled = frame.repartition(partitions, *named).selectExpr("spark_partition_id() AS partition", "records")
    real = dict(shuffled.groupBy("partition").sum("records").collect())
    loads = spark_loads(spark, keys, records, partitions)
    assert loads == [real.get(partition, 0) for partition in range(partitions)]
    assert sum(loads) == records.sum()


def test_the_baseline_takes_unsigned_integers_for_the_decimals_that_they_are_in_spark(spark) -> None:
    keys, records = pa.array([0, 5, 2**64 - 1], pa.uint64()), np.array([1, 2, 3])
    assert spark_loads(spark, keys, records, 7) == spark_loads(spark, keys.cast(pa.decimal128(20)), records, 7)


def test_the_baseline_takes_dictionaries_and_chunks(spark) -> None:
    keys = pa.chunked_array([["a", "b"], ["c"]]).dictionary_encode()
    records = np.array([1, 2, 3])
    assert spark_loads(spark, keys, records, 5) == spark_loads(spark, pa.array(["a", "b", "c"]), records, 5)


@pytest.fixture(scope="module")
def frame(spark):
    """1,000 rows: 500 hot, 250 null, 250 different."""
    word = "CASE WHEN id % 2 = 0 THEN 'hot' WHEN id % 4 = 1 THEN null ELSE concat('w', id) END"
    return spark.range(1000).selectExpr(f"{word} AS `a word`", f"CAST({word} AS BINARY) AS raw", "id")


def test_rows_are_drawn_and_counted(frame) -> None:
    rows, drawn = sample_rows(frame, 100, seed=3)
    assert rows == 1000 and 50 < drawn.num_rows < 150
    assert drawn.schema.names == frame.columns
    assert sample_rows(frame, 1000)[1].num_rows == 1000
