"""Joins on real Ray actors on a day on which a side has no rows."""

from copy import copy

import pyarrow as pa
import pytest

from dpa import Flow

pytestmark = pytest.mark.usefixtures("ray")


@pytest.mark.parametrize("rows", [2, 0], ids=["rows", "none"])
def test_columns_of_joins_mean_the_same_whether_a_side_has_rows(rows: int) -> None:
    flow = Flow("empty_sides")
    table = pa.table({"k": [1, 3], "v": [1, 2]})
    a, b, m = (flow.read(table[:number], name=name) for name, number in (("a", rows), ("b", 2), ("m", rows)))
    made = m.map(copy, schema={"k": "int64", "v": "int64"})
    a.key_by("k").join(made.key_by("k"), "left").key_by("k").join(b.key_by("k"), "right")
    found = flow.run().table()
    assert found.column_names == ["k", "v", "v_right", "v_right_right"]
    of_left = [1, 2] if rows else [None, None]
    assert found.sort_by("k").to_pydict() == {"k": [1, 3], "v": of_left, "v_right": of_left, "v_right_right": [1, 2]}
