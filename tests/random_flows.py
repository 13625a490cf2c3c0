"""Random flows of steps on columns and of aggregates: how each is run, and what must come of it."""

from __future__ import annotations

import itertools
import math
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from random_aggregates import aggregated
from random_columns import Drawn, table_of

from dpa import Flow
from dpa.columns.arrow import to_frame
from dpa.result import Result

_GROUPINGS = ("ring", "shuffle", "partial_key", "random_choices", "w_choices")
_SOON = {"strategy": "adaptive", "check_seconds": 0.0, "min_delay": 0.0}


@dataclass(frozen=True)
class DiesOnce:
    """Keeps all rows, and kills its process at the row of a number, if a file is not there yet. A driver, which looks
    at some rows before, is left alive."""

    file: str
    number: int
    driver: int

    def __call__(self, row: Mapping[str, Any]) -> bool:
        if os.getpid() != self.driver and next(_KEPT) >= self.number and not Path(self.file).exists():
            Path(self.file).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return True


_KEPT = itertools.count(1)
"""Numbers the rows that this process has kept."""


@dataclass(frozen=True)
class RandomFlow:
    """A flow, and the rows that polars makes of the whole input.

    Attributes:
        flow: to be run.
        drawn: how it was drawn.
        dies: whether one of its tasks dies.
        is_keyed: whether rows were merged by key, so that one zero may stand for the other.
    """

    seed: int
    flow: Flow
    drawn: Drawn
    is_keyed: bool
    dies: str = ""

    @staticmethod
    def of(seed: int, place: Path, rows: tuple[int, ...] = (0, 1, 7, 40, 120), *, on_ray: bool = False) -> RandomFlow:
        """The flow of a seed, whose files are written to a directory; `on_ray`: it balances, and a task may die."""
        chance = Random(seed)
        source: Any = table_of(chance.choice(rows), chance)
        table = source
        if chance.random() < 0.4 and table.num_rows and not any(name.startswith("any_") for name in table.column_names):
            source = place / f"{seed}.parquet"  # what polars scans by itself
            pq.write_table(table, source, row_group_size=chance.choice([3, 1000]))
            table = pq.read_table(source)
        drawn = Drawn.of(table, chance)
        drawn.draw(chance.randint(0, 5))
        dies = str(place / f"{seed}.died") if on_ray and chance.random() < 0.4 else ""
        if dies:
            drawn.changes.insert(
                chance.randint(0, len(drawn.changes)), _dying(DiesOnce(dies, chance.randint(1, 40), os.getpid()))
            )
        is_keyed = chance.random() < 0.7
        if is_keyed:
            for number in range(chance.choice([1, 1, 2])):
                aggregated(drawn, _options(chance, number, on_ray=on_ray))
                drawn.draw(chance.choice([0, 0, 1, 3]) if not drawn.fails else 0)
                if drawn.fails:
                    break
        batch, split = chance.choice([1, 3, 1000]), chance.choice([5, 1000])
        least = table.num_rows // 300 if on_ray else 0  # thousands of messages between processes are a minute
        limits = {"batch_records": max(batch, least), "split_records": max(split, 4 * least)}
        here = str(Path(__file__).parent)
        flow = Flow("random", seed=seed, limits=limits, python_path=[here], recovery={"backoff": 0.1})
        time = {"time": "d"} if "d" in table.column_names else {}
        stream = flow.read(source, name="input", **time)
        for change in drawn.changes:
            stream = change(stream)
        if chance.random() < 0.5 or not drawn.changes:
            stream.union(parallelism=2)
        return RandomFlow(seed, flow, drawn, is_keyed, dies)

    def check(self, result: Result) -> None:
        seed = f"seed {self.seed}"
        if self.drawn.fails:
            assert self.drawn.fails in (result.report.error or ""), f"{seed}: {result.report.error}"
            return
        assert result.report.error is None, f"{seed}: {result.report.error}"
        table = result.table()
        found = to_frame(table)
        wanted = self.drawn.frame.with_columns(pl.col(pl.Categorical).cast(pl.String))  # results have no dictionaries
        if self.drawn.by_function:
            wanted = wanted.with_columns(
                pl.Series(name, wanted[name].to_list(), kind)
                for name, kind in found.schema.items()
                if "Null" in str(kind)
            )
        assert found.schema == wanted.schema, f"{seed}: {found.schema} is not {wanted.schema}"
        assert self._rows_of(found) == self._rows_of(wanted), seed
        for name, field in self.drawn.passed.items():
            kept = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
            assert table.schema.field(name).type == kept, (
                f"{seed}: {name} is {table.schema.field(name).type}, not {kept}"
            )

    def _rows_of(self, frame: pl.DataFrame) -> list[str]:
        return sorted(repr(self._shown(row)) for row in frame.rows())

    def _shown(self, value: Any) -> Any:
        """Floats of merged rows without their last digits."""
        if isinstance(value, tuple | list):
            return [*map(self._shown, value)]
        if not self.is_keyed or not isinstance(value, float) or not math.isfinite(value):
            return value
        return f"{round(value, 9) + 0.0:.7e}"


def _dying(dies: DiesOnce) -> Any:
    return lambda rows: rows.filter(dies)


def _options(chance: Random, number: int, *, on_ray: bool) -> dict[str, Any]:
    options: dict[str, Any] = {"name": f"agg_{number}", "parallelism": chance.randint(1, 3)}
    options["combiner"] = chance.choice([True, False, "auto"])
    kind = chance.choice(["migrate", "grouping", "balance" if on_ray else "nothing"])
    if kind == "migrate":
        options["consistency"] = "migrate"
    elif kind == "grouping":
        options |= {"grouping": chance.choice(_GROUPINGS), "balance": "none"}
    elif kind == "balance":
        options["balance"] = _SOON
    return options
