"""Executors run on a little data in this process, without a job around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from dpa.config import parse
from dpa.driver.observer import Unobserved
from dpa.driver.outputs import in_memory
from dpa.driver.spec import JobSpec
from dpa.executors import as_mapper, as_reducer
from dpa.routing.keys import names_of
from dpa.sources.splits import memory_splits
from dpa.spark import as_table
from dpa.testing.backend import LocalBackend

_SPLIT_ROWS = 1_000


def run_local(
    mapper: Any = None,
    reducer: Any = None,
    data: Any = None,
    *,
    key: str | Sequence[str] | None = "key",
    value: Sequence[str] | None = None,
    reducers: int = 3,
    combine: bool = False,
    batch_records: int = 7,
) -> pa.Table:
    """Map and reduce `data` in this process and return the result, a row a key, ordered by key.

    Args:
        mapper: as in a job; None takes `key` and `value` columns from the data.
        reducer: as in a job.
        data: an Arrow table, a list of records, or a DataFrame.
        key: name of the key column, or the names of the columns of a composite key; None: all rows have one key.
        value: without a mapper, the columns that are the value.
        reducers: how many reducers share the keys; as `LocalBackend` says, keys move half way if the reducer can merge.
        combine: whether to combine in the mapper.
        batch_records: most records in a batch: small, so that there are several.

    Raises:
        ConfigError: an argument or executor does not fit.
        ExecutorError: an executor failed; names it, the key and the traceback.
    """
    spec = JobSpec(
        parse(
            {
                "key": key if key is None or isinstance(key, str) else list(key),
                "value": None if value is None else list(value),
                "combiner": combine,
                "parallelism": {"mappers": 1, "reducers": reducers},
                "limits": {"batch_records": batch_records},
            },
            origin="run_local(...)",
        ),
        None if mapper is None else as_mapper(mapper),
        as_reducer(reducer),
    )
    table = as_table(data)
    plan = spec.plan(tuple(memory_splits(table, _SPLIT_ROWS)), table.schema)
    unobserved = Unobserved()
    result = in_memory(LocalBackend().run(plan, unobserved.update, unobserved.warn))
    ordered = [name for name in names_of(spec.config.key) if not pa.types.is_null(result.schema.field(name).type)]
    return result.sort_by([(name, "ascending") for name in ordered]) if ordered and result.num_rows else result
