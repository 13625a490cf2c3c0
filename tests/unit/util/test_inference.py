"""The type of Python objects does not depend on which of them come together: in a share, a batch or an input."""

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpa._util.inference import array_of
from dpa.aggregates import Max, Mean, Sum
from dpa.errors import DpaError, ExecutorError, TableError
from dpa.executors import Reducer
from dpa.spark import as_table
from dpa.testing import run_local

DAY, NOON = date(2026, 1, 31), datetime(2026, 1, 31, 12)
UTC, EAST = timezone.utc, timezone(timedelta(hours=2))
TOGETHER = {
    "integers and decimals": ([1, Decimal("1.5")], pa.decimal128(20, 1)),
    "numpy's integers and decimals": ([Decimal("1.5"), np.int32(3)], pa.decimal128(11, 1)),
    "integers on both sides of 2**63": ([1, 2**63], pa.uint64()),
    "integers and floats of 32 bits": ([np.float32(0.5), np.int64(4)], pa.float64()),
    "moments of two time zones": ([NOON.replace(tzinfo=EAST), NOON.replace(tzinfo=UTC)], pa.timestamp("us", "UTC")),
    "nulls and dates": ([None, DAY], pa.date32()),
}
APART = {
    "dates and timestamps": [DAY, NOON],
    "timestamps with and without a time zone": [NOON, NOON.replace(tzinfo=UTC)],
    "dates and numpy's integers": [DAY, np.int64(4)],
    "decimals and floats": [Decimal("1.5"), 2.5],
    "booleans and floats": [2.5, True],
    "negative integers and such from 2**63": [-1, 2**63],
}


class Last(Reducer[Any, Any]):
    """The one value of a key."""

    def zero(self) -> Any:
        return None

    def reduce(self, state: Any, value: Any) -> Any:
        return value


def result(values: list[Any], reducers: int) -> pa.Table:
    """A key for each value, so many that they lie on different reducers."""
    keys = [(f"{number}", value) for number in range(10) for value in values]
    named = [(f"{number} {place}", value) for place, (number, value) in enumerate(keys)]
    data = [{"i": i} for i in range(len(named))]
    return run_local(lambda record: [named[record["i"]]], Last, data, reducers=reducers)


@pytest.mark.parametrize(("values", "kind"), TOGETHER.values(), ids=TOGETHER)
def test_a_result_is_of_one_type_on_one_reducer_as_on_several(values: list[Any], kind: pa.DataType) -> None:
    assert array_of(values).type == array_of(values[::-1]).type == kind
    on_one, on_several = result(values, 1), result(values, 4)
    assert on_one.schema.field("value").type == kind
    assert on_one.equals(on_several)
    assert on_one["value"].to_pylist()[: len(values)] == array_of(values).to_pylist()


@pytest.mark.parametrize("values", APART.values(), ids=APART)
def test_what_has_no_one_type_is_refused_on_one_reducer_as_on_several(values: list[Any]) -> None:
    for reducers in (1, 4):
        with pytest.raises(ExecutorError, match="column 'value'"):
            result(values, reducers)


@pytest.mark.parametrize("batch_records", [1, 10])
def test_states_are_of_one_type_however_values_fall_into_batches(batch_records: int) -> None:
    def greatest(*values: Any) -> pa.ChunkedArray:
        data = [{"i": i} for i in range(len(values))]
        table = run_local(lambda record: [("a", values[record["i"]])], Max(), data, batch_records=batch_records)
        return table["value"]

    assert greatest(2, Decimal("1.5")).to_pylist() == [2]
    assert greatest(2, Decimal("1.5")).type == pa.decimal128(20, 1)
    assert greatest(1, 2**63).to_pylist() == [2**63]
    for values in APART.values():
        with pytest.raises(DpaError):
            greatest(*values)


@pytest.mark.parametrize(("reducer", "kind"), [(Sum(), pa.decimal128(12, 1)), (Mean(), pa.decimal128(6, 5))])
def test_a_batch_of_nulls_alone_does_not_change_the_type(reducer: Any, kind: pa.DataType) -> None:
    pairs, data = [("a", Decimal("1.5")), ("b", None), ("a", None)], [{"i": i} for i in range(3)]
    for reducers, batch_records in ((1, 10), (4, 10), (4, 1)):
        sizes = {"reducers": reducers, "batch_records": batch_records}
        table = run_local(lambda record: [pairs[record["i"]]], reducer, data, **sizes)
        assert table["value"].to_pylist() == [Decimal("1.5"), None]
        assert table.schema.field("value").type == kind


def test_inline_records_lose_no_time_of_day_and_the_sum_of_no_booleans_is_of_the_type_of_any_other() -> None:
    with pytest.raises(TableError, match="column 'at' of the records mixes date and datetime"):
        as_table([{"at": DAY}, {"at": NOON}])
    assert as_table([1, 2**63])["value"].to_pylist() == [1, 2**63]
    table = pa.table({"key": ["a"], "v": [True]})
    kinds = [run_local(None, Sum("v"), rows).schema.field("v").type for rows in (table, table.slice(1))]
    assert kinds == [pa.int64(), pa.int64()]
