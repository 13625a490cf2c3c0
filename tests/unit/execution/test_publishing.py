"""What is published of an epoch: rows whose result has changed, and those that stay as they are."""

import pyarrow as pa
import pytest

from dpa.balance.options import NoBalancingOptions
from dpa.errors import ExecutorError
from dpa.execution.publishing import LastPublished, latest


def rows(**counts: object) -> pa.Table:
    return pa.table({"word": pa.array([*counts], pa.string()), "n": [*counts.values()]})


def said(changes: pa.Table) -> list[tuple[object, ...]]:
    return sorted(zip(*changes.to_pydict().values(), strict=True))


def test_changes_are_the_rows_that_are_new_or_others_than_before_and_the_newest_of_each_key_the_result() -> None:
    known = LastPublished("word")
    assert said(known.changes(rows(a=1, b=2), 3)) == [("a", 1, "insert", 3), ("b", 2, "insert", 3)]
    assert said(known.changes(rows(b=2, a=5, c=None), 4)) == [("a", 5, "update", 4), ("c", None, "insert", 4)]
    assert known.changes(rows(b=2, a=5, c=None), 5).num_rows == 0
    assert said(known.changes(rows(a=5, c=7), 6)) == [("c", 7, "update", 6)]
    known = LastPublished("word")
    epochs = [known.changes(rows(a=1, b=2), 1), known.changes(rows(a=4, b=2), 2)]
    assert said(latest(pa.concat_tables(epochs[::-1]), "word")) == [("a", 4), ("b", 2)]
    assert latest(epochs[0].slice(0, 0), "word").column_names == ["word", "n"]
    with pytest.raises(ExecutorError, match="already have a column 'epoch', as does the result"):
        LastPublished("word").changes(rows(a=1).rename_columns(["word", "epoch"]), 1)


@pytest.mark.parametrize(
    ("before", "after", "differs"),
    [
        (float("nan"), float("nan"), False),
        (None, None, False),
        (1.5, None, True),
        ([1, 2], [1, 2], False),
        ([1, 2], [1, 3], True),
        (None, 3, True),
        (3, 3.0, False),
    ],
)
def test_values_of_any_type_are_compared(before: object, after: object, differs: bool) -> None:
    known = LastPublished("word")
    known.changes(rows(a=before), 1)
    assert known.changes(rows(a=after), 2).num_rows == differs


def test_what_was_published_of_a_key_goes_where_its_state_goes() -> None:
    table = NoBalancingOptions().ring(2).snapshot(0)
    here, there = LastPublished("word"), LastPublished("word")
    all_rows = rows(**dict.fromkeys("abcdefgh", 1))
    here.changes(all_rows, 1)
    moved = here.pack(table, keep=0)
    assert moved.keys() == {1} and 0 < moved[1].num_rows < 8
    there.add(moved[1])
    kept = {*all_rows["word"].to_pylist()} - {*moved[1]["word"].to_pylist()}
    assert here.changes(rows(**dict.fromkeys(sorted(kept), 1)), 2).num_rows == 0
    [first, *others] = moved[1]["word"].to_pylist()
    found = there.changes(rows(**{first: 2, **dict.fromkeys(others, 1)}), 2)
    assert said(found) == [(first, 2, "update", 2)]
