"""Generated inputs: the same rows however they are cut, at the pace that was asked for, and clear errors."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpa.errors import TableError
from dpa.sources.distributions import names, zipf
from dpa.sources.feed import table_of
from dpa.sources.generated import BLOCK_ROWS, EndlessTable, GeneratedSplit, GeneratedTable, Generator, ReadRate
from dpa.sources.splits import total_rows


class Readings(Generator):
    """Positions, and random numbers of which a row needs an unforeseeable number."""

    def batch(self, start: int, rows: int, random: np.random.Generator) -> pa.RecordBatch:
        drawn = random.standard_gamma(0.5, rows)
        return pa.record_batch({"position": np.arange(start, start + rows), "value": drawn})


class Misbehaved(Generator):
    """Does what a generator must not do, in the block after the first one."""

    def __init__(self, how: object) -> None:
        self.how = how

    def batch(self, start: int, rows: int, random: np.random.Generator) -> pa.RecordBatch:
        if start and self.how == "raises":
            raise ValueError("no such position")
        if start and self.how == "other type":
            return pa.record_batch({"n": pa.array([0.5] * rows)})
        return pa.record_batch({"n": pa.array(range(rows - (self.how == "too few" and start > 0)))})


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def read(splits: list[GeneratedSplit], batch_rows: int, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches((batch for split in splits for batch in split.batches(batch_rows)), schema)


def rows_of(table: GeneratedTable) -> pa.Table:
    return read(table.splits(1_000), 1_000, table.schema)


sizes = st.integers(1, 3 * BLOCK_ROWS)
WHOLE = rows_of(GeneratedTable(Readings(), 3 * BLOCK_ROWS, seed=7))


# --- rows


@given(rows=sizes, split_rows=sizes, batch_rows=sizes)
def test_rows_do_not_depend_on_how_a_table_is_cut_or_its_length(rows: int, split_rows: int, batch_rows: int) -> None:
    split_rows, batch_rows = max(split_rows, rows // 20), max(batch_rows, rows // 20)
    table = GeneratedTable(Readings(), rows, seed=7)
    splits = table.splits(split_rows)
    assert [split.start for split in splits] == list(range(0, rows, split_rows))
    assert total_rows(splits) == rows
    assert all(batch.num_rows <= batch_rows for split in splits for batch in split.batches(batch_rows))
    assert read(splits, batch_rows, table.schema).equals(WHOLE.slice(0, rows))


def test_seeds_and_blocks_have_random_numbers_of_their_own() -> None:
    values = WHOLE["value"].to_numpy()
    assert len(np.unique(values)) == len(values)
    other = rows_of(GeneratedTable(Readings(), BLOCK_ROWS, seed=-8))
    assert not set(other["value"].to_pylist()) & set(values.tolist())


def test_a_table_may_have_no_rows_a_padding_and_splits_that_are_small_whatever_they_generate() -> None:
    table = GeneratedTable(Readings(), 0)
    assert table.splits(10) == []
    assert rows_of(table).num_rows == table.sample(10).num_rows == 0
    assert table.schema.names == ["position", "value"]
    padded = rows_of(GeneratedTable(Readings(), 5_000, seed=7, padding=32))
    assert padded.select(["position", "value"]).equals(WHOLE.slice(0, 5_000))
    assert set(padded["padding"].to_pylist()) == {bytes(32)}
    assert len(pickle.dumps(GeneratedTable(Readings(), 10**9).splits(10**9)[0])) < 1_000


def test_a_sample_has_whole_blocks_of_rows_in_order() -> None:
    for most, rows in ((1, BLOCK_ROWS), (BLOCK_ROWS + 1, 2 * BLOCK_ROWS), (10**9, 3 * BLOCK_ROWS)):
        positions = GeneratedTable(Readings(), 3 * BLOCK_ROWS, seed=7).sample(most, seed=3)["position"].to_pylist()
        assert len(positions) == rows
        assert positions == sorted(set(positions))


def test_a_table_without_end_begins_as_one_with_an_end() -> None:
    endless, position, rows = EndlessTable(GeneratedTable(Readings(), 300)), None, []
    for _ in range(3):
        page = endless.poll(200, position)
        position = page.position
        rows += [batch for split in page.splits for batch in split.batches(64)]
    assert pa.Table.from_batches(rows) == table_of(GeneratedTable(Readings(), 900).splits(1_000))
    assert endless.is_open and endless.schema == endless.sample(10).schema


def test_rows_of_a_table_without_end_come_in_time_from_where_it_is_first_polled() -> None:
    now = 100.0
    endless = EndlessTable(GeneratedTable(Readings(), 300), 50.0, lambda: now)
    assert (endless.poll(200, 1_000).splits, endless.poll(200, 1_000).position) == ([], 1_000)
    now = 101.0
    assert [(split.start, split.rows) for split in endless.poll(30, 1_000).splits] == [(1_000, 30), (1_030, 20)]
    now = 200.0
    assert endless.poll(200, 1_050).position == 1_350  # no more at a time


# --- pace


@pytest.mark.parametrize("rate", [0.5, 40.0, 100_000.0])
def test_a_paced_split_takes_as_long_as_its_records_at_that_rate(rate: float) -> None:
    clock = Clock()
    split, *_ = GeneratedTable(Readings(), 20_000, pace=ReadRate(rate, clock, clock.sleep)).splits(20_000)
    began, rows = clock.now, 0
    for batch in split.batches(200_000):
        rows += batch.num_rows
        assert clock.now - began == pytest.approx(rows / rate)
        assert batch.num_rows <= max(1, rate * 0.05)
    assert rows == split.rows <= max(1, rate)


def test_a_reader_that_was_held_up_makes_up_for_it_within_the_split() -> None:
    clock = Clock()
    split, *_ = GeneratedTable(Readings(), 1_000, pace=ReadRate(1_000.0, clock, clock.sleep)).splits(1_000)
    began, batches = clock.now, split.batches(1_000)
    next(batches)
    clock.now += 0.5
    assert sum(batch.num_rows for batch in batches) == 980
    assert clock.now - began == pytest.approx(1.0)


# --- errors


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("raises", r"Misbehaved.batch failed on 4096 rows from 4096: ValueError: no such position"),
        ("other type", r"Misbehaved.batch returned columns of other names or types at row 4096 .*: n: double"),
        ("too few", r"Misbehaved.batch must return a RecordBatch of 4096 rows, not 4095 rows"),
        (lambda: None, "Misbehaved cannot be pickled"),
    ],
)
def test_a_generator_that_breaks_its_contract_is_named(how: object, message: str) -> None:
    with pytest.raises(TableError, match=message):
        rows_of(GeneratedTable(Misbehaved(how), 2 * BLOCK_ROWS))


def test_a_generator_whose_module_is_missing_where_it_is_read_says_so() -> None:
    split = GeneratedSplit(b"cno_such_module\nName\n.", WHOLE.schema, 0, 0, 1)
    with pytest.raises(TableError, match="cannot be imported where it is read: No module named 'no_such_module'"):
        next(split.batches(1))


# --- distributions


@pytest.mark.parametrize("exponent", [0.0, 0.8, 1.2])
def test_ranks_come_as_often_as_zipf_says(exponent: float) -> None:
    ranks = zipf(np.random.default_rng(1), 200_000, 50, exponent)
    weights = np.arange(1, 51.0) ** -exponent
    expected = 200_000 * weights / weights.sum()
    found = np.bincount(ranks, minlength=50)
    assert len(found) == 50
    assert np.all(np.abs(found - expected) < 5 * np.sqrt(expected))


def test_names_are_distinct_and_begin_with_all_letters() -> None:
    found = names(np.arange(60), 60).to_pylist()
    assert found[:2] + found[25:28] == ["a0", "b1", "z25", "a26", "b27"]
    assert len(set(found)) == 60
