import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dpa.errors import TableError
from dpa.spark import as_table

WORDS = pd.DataFrame({"word": ["a", "b"], "n": [1, 2]}, index=[7, 9])
DAYS = pd.to_datetime(["2024-01-01", "2024-01-02"])


@pytest.mark.parametrize(
    ("data", "columns"),
    [
        (pa.table({"a": [1]}), {"a": [1]}),
        (pa.record_batch({"a": [1]}), {"a": [1]}),
        (["a", None, "b"], {"value": ["a", None, "b"]}),
        (("a", None, "b"), {"value": ["a", None, "b"]}),
        (iter(["a", None, "b"]), {"value": ["a", None, "b"]}),
        ([{"a": 1}, {"b": "x", "a": 2}, {}], {"a": [1, 2, None], "b": [None, "x", None]}),
        ([], {"value": []}),
        (WORDS, {"word": ["a", "b"], "n": [1, 2]}),
        (WORDS.reset_index(drop=True), {"word": ["a", "b"], "n": [1, 2]}),
        (WORDS.set_index("word"), {"word": ["a", "b"], "n": [1, 2]}),
        (WORDS.set_index(["n", "word"]), {"n": [1, 2], "word": ["a", "b"]}),
        (WORDS.set_index("word", append=True), {"word": ["a", "b"], "n": [1, 2]}),
        (WORDS.set_index(pd.RangeIndex(2, name="id")), {"id": [0, 1], "word": ["a", "b"], "n": [1, 2]}),
        (WORDS.set_index(DAYS.rename("day"))[["n"]], {"day": [*DAYS], "n": [1, 2]}),
    ],
    ids=[
        *("table", "batch", "list", "tuple", "iterator", "dicts", "nothing", "index without a name", "default index"),
        *("a column as index", "two columns", "one of two levels named", "a range", "dates"),
    ],
)
def test_tables_records_and_frames_with_named_indexes_become_columns(data, columns: dict[str, list[object]]) -> None:
    table = as_table(data)
    assert table.to_pydict() == columns
    assert not isinstance(data, pa.Table) or table is data


def test_a_polars_frame_comes_with_plain_strings() -> None:
    table = as_table(pl.DataFrame({"word": ["a", None], "n": [1, 2], "raw": [b"x", b"y"]}))
    assert table.to_pydict() == {"word": ["a", None], "n": [1, 2], "raw": [b"x", b"y"]}
    assert table.schema.field("word").type in (pa.string(), pa.large_string())
    assert table.schema.field("raw").type in (pa.binary(), pa.large_binary())


@pytest.mark.parametrize(
    ("data", "why"),
    [
        *(
            (data, f"must be an Arrow table, a list of dicts.* not {type(data).__name__}")
            for data in ("text", b"bytes", 3, {"a": [1]}, None)
        ),
        (WORDS.set_index("word", drop=False), "the DataFrame's index and a column are both named 'word'"),
        ([{"a": 1}, 2], "record 0 is a mapping, record 1 int"),
        ([{"n": 1}, {"n": "x"}], "column 'n' of the records mixes int and str"),
        ([object()], "column 'value' of the records cannot be converted"),
        ([{1: 2}], "must be strings, not 1"),
        (pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]), "more than one column named 'a'"),
    ],
)
def test_what_is_no_table_is_refused_with_what_is_wrong(data, why: str) -> None:
    with pytest.raises(TableError, match=why):
        as_table(data)
