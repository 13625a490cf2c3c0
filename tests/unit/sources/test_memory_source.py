import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dpa.errors import TableError
from dpa.spark import as_table


def test_an_arrow_table_is_taken_as_it_is() -> None:
    table = pa.table({"a": [1]})
    assert as_table(table) is table


def test_a_record_batch_becomes_a_table() -> None:
    assert as_table(pa.record_batch({"a": [1]})) == pa.table({"a": [1]})


@pytest.mark.parametrize("records", [["a", None, "b"], ("a", None, "b"), iter(["a", None, "b"])])
def test_scalars_become_the_column_value(records) -> None:
    assert as_table(records).to_pydict() == {"value": ["a", None, "b"]}


def test_dicts_become_rows_and_a_key_that_some_lack_is_null_there() -> None:
    assert as_table([{"a": 1}, {"b": "x", "a": 2}, {}]).to_pydict() == {"a": [1, 2, None], "b": [None, "x", None]}


def test_no_records_are_a_table_without_rows() -> None:
    assert as_table([]).num_rows == 0


WORDS = pd.DataFrame({"word": ["a", "b"], "n": [1, 2]}, index=[7, 9])
DAYS = pd.to_datetime(["2024-01-01", "2024-01-02"])


@pytest.mark.parametrize(
    ("frame", "columns"),
    [
        (WORDS, {"word": ["a", "b"], "n": [1, 2]}),
        (WORDS.reset_index(drop=True), {"word": ["a", "b"], "n": [1, 2]}),
        (WORDS.set_index("word"), {"word": ["a", "b"], "n": [1, 2]}),
        (WORDS.set_index(["n", "word"]), {"n": [1, 2], "word": ["a", "b"]}),
        (WORDS.set_index("word", append=True), {"word": ["a", "b"], "n": [1, 2]}),
        (WORDS.set_index(pd.RangeIndex(2, name="id")), {"id": [0, 1], "word": ["a", "b"], "n": [1, 2]}),
        (WORDS.set_index(DAYS.rename("day"))[["n"]], {"day": [*DAYS], "n": [1, 2]}),
    ],
    ids=["without a name", "the default", "a column", "two columns", "one of two levels named", "a range", "dates"],
)
def test_the_named_levels_of_a_pandas_index_are_columns(frame: pd.DataFrame, columns: dict[str, list[object]]) -> None:
    assert as_table(frame).to_pydict() == columns


def test_a_pandas_index_named_as_a_column_is_refused() -> None:
    with pytest.raises(TableError, match="the DataFrame's index and a column are both named 'word'"):
        as_table(WORDS.set_index("word", drop=False))


def test_a_polars_frame_comes_with_plain_strings() -> None:
    table = as_table(pl.DataFrame({"word": ["a", None], "n": [1, 2], "raw": [b"x", b"y"]}))
    assert table.to_pydict() == {"word": ["a", None], "n": [1, 2], "raw": [b"x", b"y"]}
    assert table.schema.field("word").type in (pa.string(), pa.large_string())
    assert table.schema.field("raw").type in (pa.binary(), pa.large_binary())


@pytest.mark.parametrize("data", ["text", b"bytes", 3, {"a": [1]}, None])
def test_anything_else_is_refused_with_a_list_of_what_is_accepted(data) -> None:
    with pytest.raises(TableError, match=f"must be an Arrow table, a list of dicts.* not {type(data).__name__}"):
        as_table(data)


def test_dicts_and_scalars_do_not_mix() -> None:
    with pytest.raises(TableError, match="record 0 is a mapping, record 1 int"):
        as_table([{"a": 1}, 2])


def test_a_column_of_mixed_types_is_named_with_its_types() -> None:
    with pytest.raises(TableError, match="column 'n' of the records mixes int and str"):
        as_table([{"n": 1}, {"n": "x"}])


def test_values_that_arrow_does_not_know_are_refused() -> None:
    with pytest.raises(TableError, match="column 'value' of the records cannot be converted"):
        as_table([object()])


def test_keys_that_are_no_strings_are_refused() -> None:
    with pytest.raises(TableError, match="must be strings, not 1"):
        as_table([{1: 2}])


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(TableError, match="more than one column named 'a'"):
        as_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]))
