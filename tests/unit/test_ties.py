"""`top_k` among rows that tie: which come first does not depend on the order of the rows, whatever tells them apart."""

from __future__ import annotations

import itertools
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from dpa import Flow
from dpa.aggregates import TopRows
from dpa.testing import LocalBackend, run_local

NAN = float("nan")
POINT = pa.struct({"x": pa.int64(), "y": pa.list_(pa.string())})
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "lists": (pa.list_(pa.int64()), [None, [], [1], [1, 2], [None]]),
    "large lists of numbers": (pa.large_list(pa.float64()), [[NAN], [1.0], [None], [-1.0, NAN], None]),
    "lists of one size": (pa.list_(pa.date32(), 1), [[date(2024, 1, day)] for day in (3, 1, 2)]),
    "structs": (POINT, [None, {"x": 1, "y": ["a"]}, {"x": 1, "y": []}, {"x": None, "y": ["a"]}, {"x": 0, "y": None}]),
    "maps": (pa.map_(pa.string(), pa.decimal128(3, 1)), [[], [("a", Decimal("1.5"))], [("a", None)], None]),
    "lists of bytes and words": (pa.list_(pa.dictionary(pa.int32(), pa.string())), [["b"], ["a"], ["a", "b"], None]),
}


@pytest.mark.parametrize(("kind", "values"), COLUMNS.values(), ids=COLUMNS)
@pytest.mark.parametrize("k", [1, 3])
def test_rows_that_a_list_or_a_struct_alone_tells_apart_are_ranked_by_it(
    kind: pa.DataType, values: list[Any], k: int
) -> None:
    found = set()
    for order in itertools.permutations(values):
        rows = pa.table({"n": [NAN] * len(order), "value": pa.array(order, kind)})
        found.add(repr(run_local(None, TopRows(k, "n"), rows, key=None).to_pylist()))
    assert len(found) == 1


def test_lists_are_ranked_after_all_other_columns_element_by_element() -> None:
    rows = [(5, 2, [1]), (5, 1, [3]), (5, 1, [2, 9]), (5, 1, [2]), (5, 1, None), (5, None, [0])]
    for order in itertools.islice(itertools.permutations(rows), 0, None, 18):
        n, m, tags = (list(column) for column in zip(*order, strict=True))
        flow = Flow("tests", limits={"batch_records": 2, "in_flight_records": 8, "split_records": 2})
        flow.read(pa.table({"n": n, "tags": pa.array(tags, pa.list_(pa.int64())), "m": m})).top_k(6, by="n")
        found = sorted(flow.run(backend=LocalBackend()).table().to_pylist(), key=lambda row: row["rank"])
        assert [row["tags"] for row in found] == [[2], [2, 9], [3], None, [1], [0]]
