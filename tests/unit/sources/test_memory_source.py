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


def test_a_pandas_frame_comes_without_its_index() -> None:
    frame = pd.DataFrame({"word": ["a", "b"], "n": [1, 2]}, index=[7, 9])
    assert as_table(frame).to_pydict() == {"word": ["a", "b"], "n": [1, 2]}


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
