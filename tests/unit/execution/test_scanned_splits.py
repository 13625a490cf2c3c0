"""Splits that are read by queries give what they give when they are read by batches, whatever comes in between."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builders import map_task

from dpa.aggregates import Count
from dpa.columns.aggregation import Aggregation
from dpa.columns.query import Query, Verb
from dpa.errors import ExecutorError, TableError
from dpa.execution import _queries, combining
from dpa.execution import emission as emission_module
from dpa.execution.block import Block
from dpa.execution.combining import Combining
from dpa.execution.emission import Emission
from dpa.execution.mapping import Emitted
from dpa.execution.receivers import receiver_of
from dpa.execution.row_operators import Chunk, chunks_of
from dpa.execution.rows import Portions, ScannedRows
from dpa.executors import Groups
from dpa.operators import RowKind, RowOperator
from dpa.sources import splits
from dpa.sources.parquet import parquet_table
from dpa.sources.splits import NumberedSplit, Split

KEYS: dict[str, pa.Array] = {
    "text": pa.array(["a", None, "", "ä", "a"]),
    "large": pa.array(["a", None, "", "ä", "a"], pa.large_string()),
    "bytes": pa.array([b"\xff", None, b"", b"\xff", b"a"]),
    "int8": pa.array([-1, 2, None, -1, 0], pa.int8()),
    "uint64": pa.array([1, 2**63 - 1, None, 1, 0], pa.uint64()),
    "bool": pa.array([True, None, False, True, True]),
    "date": pa.array([date(1999, 1, 1), None, date(2024, 2, 29), date(1999, 1, 1), date(1, 1, 1)]),
    "local": pa.array([datetime(1999, 1, 1), None, datetime(2000, 1, 1), None, datetime(1999, 1, 1)]),
    "instant": pa.array([datetime(1999, 1, 1), None] * 2 + [None], pa.timestamp("ms", "Europe/Berlin")),
    "decimal": pa.array([Decimal("1.10"), None, Decimal("-0.5"), Decimal("1.1"), None], pa.decimal128(12, 2)),
    "small decimal": pa.array([Decimal("1.1"), None] * 2 + [None], pa.decimal64(12, 2)),
    "dictionary": pa.array(["a", None, "b", "a", "a"]).dictionary_encode(),
    "nothing": pa.nulls(5),
}


def written(path: Path, table: pa.Table, row_group: int = 100) -> str:
    pq.write_table(table, path / "table.parquet", row_group_size=row_group)
    return str(path / "table.parquet")


def scanned(emission: Emission, split: Split, at_once: Sequence[int] = (1,)) -> Iterator[Emitted]:
    """As a task reads it."""
    portions = Portions(split)
    portions.at_once = at_once[0]
    for number, step in enumerate(emission.steps(portions, time.monotonic), start=1):
        portions.at_once = at_once[number % len(at_once)]
        yield step


def table_of(steps: Sequence[Emitted], reducer: Any, key: Any) -> list[dict[str, Any]]:
    store = receiver_of(reducer, None).own_store()
    for step in steps:
        for _, block in step.blocks:
            store.reduce(block)
    reduced = store.finish(key)
    counts = reduced.table.append_column("mapped", pa.array(reduced.mapped))
    return sorted(counts.to_pylist(), key=repr)


def on_columns(*verbs: Verb) -> RowOperator:
    return RowOperator(RowKind.MAP, Query(verbs), on_batches=True)


DOUBLED = on_columns(Verb("with_columns", (pl.col("value") * 2,)))
ANY = on_columns(Verb("filter", (pl.col("value") > 0,)))
LARGE = on_columns(Verb("filter", (pl.col("value") > 6,)))
STRICT = on_columns(Verb("with_columns", (pl.col("text").cast(pl.Int64),)))


def rows_of(steps: Sequence[Emitted]) -> list[Any]:
    blocks = [block for step in steps for _, block in step.blocks]
    return [
        (key, value)
        for block in blocks
        for key, value in zip(block.keys.take(block.codes).to_pylist(), block.columns.to_pylist(), strict=True)
    ]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_FOLDED", "_MANY_FOLDED", "_LEAST"):
        monkeypatch.setattr(_queries, name, 1)
    monkeypatch.setattr(splits, "_NUMBERED", 1)


@pytest.fixture
def queries_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_scanned(rows: Any, *arguments: Any, **named: Any) -> Iterator[Chunk]:
        assert not isinstance(rows, ScannedRows), "the query of a piece has failed"
        return chunks_of(rows, *arguments, **named)

    monkeypatch.setattr(emission_module, "chunks_of", not_scanned)


@pytest.mark.usefixtures("queries_only")
@pytest.mark.parametrize("name", [*KEYS, "composite", "none"])
@pytest.mark.parametrize("reads", [("key", "other", "value"), ("key",)], ids=["all columns", "the key alone"])
def test_every_type_of_key_counts_as_by_batches(tmp_path: Path, name: str, reads: tuple[str, ...]) -> None:
    columns = {"key": KEYS.get(name, KEYS["text"]), "other": KEYS["int8"], "value": pa.array([1, 2, 3, 4, 5])}
    key: Any = {"composite": ("key", "other"), "none": ()}.get(name, "key")
    reads = ("key", "other") if name == "composite" and len(reads) == 1 else reads
    path = written(tmp_path, pa.table({**columns, "other": columns["key"] if len(reads) == 2 else columns["other"]}), 2)
    [split] = replace(parquet_table([path]), columns=reads, dictionary=reads).splits(10)
    edge = map_task(None, Count(), key=key, values=reads[2:], combine=True)

    by_query, by_batches = list(scanned(Emission((edge,)), split, (2, 1, 3))), list(edge.steps(split, time.monotonic))

    assert table_of(by_query, Count(), edge.key) == table_of(by_batches, Count(), edge.key)
    assert sum(step.read for step in by_query) == sum(step.mapped for step in by_query) == 5
    keys = {block.keys.type for step in (*by_query, *by_batches) for _, block in step.blocks}
    assert len(keys) == 1
    for step in by_query:
        for _, block in step.blocks:
            assert block.combined
            again = Block.of(block.keys, None, edge.seed)
            assert (again.hashes[again.codes] == block.hashes).all()


@pytest.mark.usefixtures("queries_only")
def test_each_of_many_composite_keys_keeps_its_own_state(tmp_path: Path) -> None:
    first, second = [number * 7 % 10 for number in range(500)], [str(number * 3 % 11) for number in range(500)]
    [split] = parquet_table([written(tmp_path, pa.table({"a": first, "b": second, "v": range(500)}), 500)]).splits(500)
    total = Aggregation({"total": pl.col("v").sum()})
    edge = map_task(None, total, key=("a", "b"), values=("v",), combine=True)

    by_query, by_batches = list(scanned(Emission((edge,)), split, (500,))), list(edge.steps(split, time.monotonic))

    assert table_of(by_query, total, edge.key) == table_of(by_batches, total, edge.key)


@pytest.mark.usefixtures("queries_only")
@pytest.mark.parametrize("operators", [(DOUBLED,), (DOUBLED, LARGE), (LARGE, DOUBLED, LARGE)])
@pytest.mark.parametrize("skipped", [0, 3, 20])
def test_verbs_give_the_same_rows_as_by_batches(
    tmp_path: Path, operators: tuple[RowOperator, ...], skipped: int
) -> None:
    table = pa.table({"key": [f"k{number % 4}" for number in range(23)], "value": range(23)})
    [split] = parquet_table([written(tmp_path, table, 7)]).splits(100)
    emission = Emission((map_task(None, Count()),), operators)

    by_query = list(scanned(emission, split.after(skipped), (4, 30, 2)))
    by_batches = list(emission.steps(split.after(skipped), time.monotonic))

    assert rows_of(by_query) == rows_of(by_batches)
    assert sum(step.read for step in by_query) == 23 - skipped
    assert all(block.rows <= 5 for step in by_query for _, block in step.blocks)


@pytest.mark.usefixtures("queries_only")
def test_a_query_asks_only_for_the_columns_that_it_needs(tmp_path: Path) -> None:
    table = pa.table({"key": ["a", "b"], "value": [1, 2], "damaged": ["x" * 100, "y" * 100]})
    path = Path(written(tmp_path, table))
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"x" * 100, b"\xff" * 100))
    [split] = parquet_table([str(path)]).splits(10)
    edge = map_task(None, Count(), values=("value",), combine=True)

    assert len(list(scanned(Emission((edge,), (DOUBLED,)), split))) == 1


@pytest.mark.parametrize("row_group", [1, 10, 400])
def test_few_rows_at_once_are_read_by_batches_and_a_file_is_not_opened_for_each_of_its_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row_group: int
) -> None:
    monkeypatch.setattr(_queries, "_LEAST", 1_000)
    table = pa.table({"key": ["a"] * 400, "value": range(400)})
    [split] = parquet_table([written(tmp_path, table, row_group)]).splits(1000)
    opened, read_footer = [], pq.read_metadata
    monkeypatch.setattr(pq, "read_metadata", lambda source: opened.append(source) or read_footer(source))
    emission = Emission((map_task(None, Count(), batch_records=100),), (DOUBLED,))
    steps = list(scanned(emission, split, (1, 20)))
    assert [value["value"] for _, value in rows_of(steps)] == [*range(0, 800, 2)]
    assert len(opened) == 2, "for the rows of its row groups, and for its rows"
    monkeypatch.setattr(_queries, "_LEAST", 4)
    steps = list(scanned(emission, split, (1, 2, 3, 9)))
    assert [value["value"] for _, value in rows_of(steps)] == [*range(0, 800, 2)]
    assert [step.read for step in steps][:3] == [1, 2, 3]


class Twice(Count):
    """Its values count twice, which the partial expressions of its base do not know."""

    def reduce(self, groups: Groups) -> pa.RecordBatch:
        return pa.record_batch({"count": pa.array(2 * groups.sizes(), pa.int64())})


def test_a_reducer_that_overrides_reduce_has_no_partials_of_its_base_and_a_file_must_stay(tmp_path: Path) -> None:
    [split] = parquet_table([written(tmp_path, pa.table({"key": ["a"] * 3, "value": [1, 2, 3]}))]).splits(100)
    emission = Emission((map_task(None, Twice(), values=("value",), combine=True),))
    assert table_of(list(scanned(emission, split, (9,))), Twice(), "key") == [{"key": "a", "count": 6, "mapped": 3}]
    written(tmp_path, pa.table({"key": ["a", "b"] * 100, "value": range(200)}))
    with pytest.raises(TableError, match="was changed while the job was running"):
        list(scanned(Emission((map_task(None, Count(), combine=True),)), split))


def test_keys_are_folded_as_long_as_that_pays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(combining, "FEW_RECORDS", 10)
    keys = [*(number % 3 for number in range(40)), *range(400), *(number % 3 for number in range(60))]
    [split] = parquet_table([written(tmp_path, pa.table({"key": keys, "value": keys}), 20)]).splits(1000)
    edge = map_task(None, Count(), values=("value",), combine=Combining(), batch_records=20)

    by_query = list(scanned(Emission((edge,)), split, (20,)))
    by_batches = list(replace(edge, combine=Combining()).steps(split, time.monotonic))

    assert table_of(by_query, Count(), "key") == table_of(by_batches, Count(), "key")
    assert sum(step.read for step in by_query) == sum(step.mapped for step in by_query) == len(keys)
    for steps in (by_query, by_batches):
        folded = [block.combined for step in steps for _, block in step.blocks]
        # 40 rows that paid, 20 that did not, 320 that are sent as they are, 20 that are tried again, and the rest
        assert folded == [True] * 3 + [False] * 16 + [True] + [False] * 5


def test_a_query_reads_more_rows_once_folding_has_paid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_queries, "_FOLDED", 100)
    monkeypatch.setattr(_queries, "_MANY_FOLDED", 200)
    edge = map_task(None, Count(), values=("value",), combine=Combining())
    query = _queries.ScanQuery.of((), (edge,))
    assert query is not None

    wanted = [query.wanted(20, 10**8)]
    for states in (50, 51):
        edge.combine.folded(100, states)
        wanted.append(query.wanted(20, 10**8))

    assert wanted == [100, 200, 0]


@pytest.mark.usefixtures("queries_only")
def test_what_is_closed_in_the_middle_continues_where_it_was_left(tmp_path: Path) -> None:
    [split] = parquet_table([written(tmp_path, pa.table({"key": ["a"] * 9, "value": range(9)}), 3)]).splits(100)
    emission = Emission((map_task(None, Count()),), (DOUBLED,))
    portions = Portions(NumberedSplit(split, 0))

    steps = []
    for step in emission.steps(portions, time.monotonic):
        steps.append(step)
        portions.close()
    read = sum(step.read for step in steps)
    rest = list(scanned(emission, split.after(read)))

    assert read == 3
    assert [value["value"] for _, value in rows_of([*steps, *rest])] == [*range(0, 18, 2)]


def test_a_value_that_does_not_do_is_named_as_by_batches(tmp_path: Path) -> None:
    table = pa.table({"key": ["a", "b", "c"], "text": ["1", "no number", "3"], "value": [1, 2, 3]})
    [split] = parquet_table([written(tmp_path, table)]).splits(100)
    emission = Emission((map_task(None, Count()),), (STRICT,))

    with pytest.raises(ExecutorError) as by_batches:
        list(emission.steps(split, time.monotonic))
    with pytest.raises(ExecutorError) as by_query:
        list(scanned(emission, split, (9,)))

    assert str(by_query.value) == str(by_batches.value)
    assert "no number" in str(by_query.value)


@pytest.mark.usefixtures("queries_only")
@pytest.mark.parametrize("combine", [False, True])
def test_a_column_that_is_not_taken_fails_neither_with_a_query_nor_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, combine: bool
) -> None:
    table = pa.table({"key": ["a", "b", "c"], "text": ["1", "no number", "3"], "value": [1, 2, 3]})
    [split] = parquet_table([written(tmp_path, table)]).splits(100)
    edge = map_task(None, Count(), values=(), combine=combine)

    by_query = list(scanned(Emission((edge,), (STRICT,)), split, (9,)))
    monkeypatch.undo()
    by_batches = list(scanned(Emission((edge,), (STRICT, ANY)), split, (1,)))

    for steps in (by_query, by_batches):
        assert [row["count"] for row in table_of(steps, Count(), "key")] == [1, 1, 1]


SEVERAL_TYPES = {
    "large": pa.array(["a", None, "b"], pa.large_string()),
    "view": pa.array(["a", None, "b"], pa.string_view()),
    "fixed": pa.array([b"ab", None, b"cd"], pa.binary(2)),
    "small decimal": pa.array([Decimal("1.10"), None, Decimal("2.10")], pa.decimal32(5, 2)),
    "seconds": pa.array([1, None, 2], pa.time32("ms")),
    "time": pa.array([1, None, 2], pa.time64("us")),
}
"""Types of which polars holds several as one."""


@pytest.mark.usefixtures("queries_only")
@pytest.mark.parametrize("name", SEVERAL_TYPES)
def test_states_have_the_types_that_they_have_by_batches(tmp_path: Path, name: str) -> None:
    [split] = parquet_table([written(tmp_path, pa.table({"key": ["a"] * 3, "value": SEVERAL_TYPES[name]}))]).splits(10)
    largest = Aggregation({"most": pl.col("value").max(), "n": pl.len()})
    edge = map_task(None, largest, values=("value",), combine=True)

    portions = Portions(split)
    portions.at_once = 3
    [by_query], [by_batches] = list(scanned(Emission((edge,)), split)), list(edge.steps(portions, time.monotonic))

    assert by_query.blocks[0][1].columns.schema == by_batches.blocks[0][1].columns.schema
    assert by_query.blocks[0][1].columns.to_pylist() == by_batches.blocks[0][1].columns.to_pylist()
