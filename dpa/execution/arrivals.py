"""The columns that came from each input of a union, or of a join, where they are known only while the job runs.

Senders note them beside each block. A task finds other types as soon as both have come to it. A missing column is found
when the stage ends, over all its tasks: until then it may still come, as functions give rows with columns of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from dpa.errors import ConfigError, ExecutorError
from dpa.execution.unions import require_one_key, united


@dataclass(frozen=True)
class Input:
    """One of several inputs whose columns must go together.

    Attributes:
        place: the key path of what names them.
        step: whose rows they are.
        fills: whether rows of a union may lack columns.
        is_side: whether only keys must go together, as those of the sides of a join.
    """

    place: str
    step: str
    fills: bool = False
    is_side: bool = False


Arrived = Mapping[Input, pa.Schema]
"""The columns of each input; of the sides of a join, those of the key."""


def merged(parts: Iterable[Arrived]) -> dict[Input, pa.Schema]:
    """Types of one input that do not go together are left to what takes the rows."""
    found: dict[Input, pa.Schema] = {}
    for part in parts:
        for given, schema in part.items():
            known = found.get(given)
            if known is None or known.equals(schema):
                found[given] = schema
                continue
            try:
                found[given] = united({"before": known, "now": schema}, fills=True)
            except ConfigError:
                continue
    return found


def check(arrived: Arrived, *, is_all: bool) -> None:
    """Raises ExecutorError, with the place and the inputs, where what has come does not go together. `is_all`: nothing
    else will come, so a missing column is an error."""
    by_place: dict[str, list[Input]] = {}
    for given in arrived:
        by_place.setdefault(given.place, []).append(given)
    for place, inputs in by_place.items():
        schemas = {given.step: arrived[given] for given in inputs}
        try:
            if inputs[0].is_side:
                require_one_key(list(schemas.items()))
            else:
                united(schemas, fills=inputs[0].fills or not is_all)
        except ConfigError as error:
            raise ExecutorError(f"{place}: {error}") from None
