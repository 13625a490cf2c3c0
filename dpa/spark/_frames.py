"""Any input in memory as an Arrow table, a Spark DataFrame among them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from dpa.sources import memory
from dpa.spark._errors import as_table_error


def as_table(data: Any) -> pa.Table:
    """Make an Arrow table of an input in memory: a Spark DataFrame, or what `dpa.sources.memory.as_table` accepts.

    Raises:
        TableError: it is none of these, Spark cannot compute it, two columns share a name, or a column mixes types.
    """
    if hasattr(data, "toArrow"):
        with as_table_error("the Spark DataFrame"):
            data = data.toArrow()
    return memory.as_table(data)
