"""What `experiments.streaming` has both engines read, and how it checks and times what they give."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from experiments.streaming.inputs import MICROS, Arrivals, EventFiles, Expected

FILES = EventFiles(files=4, file_rows=100, file_seconds=5.0, window_seconds=10.0, is_hot=True, keys=10)


def counted(expected: Expected) -> pa.Table:
    rows = [
        {"key": f"k{key}", "window_end": end, "count": int(count)}
        for end, counts in expected.counts.items()
        for key, count in enumerate(counts)
        if count
    ]
    table = pa.Table.from_pylist(rows)
    return table.set_column(1, "window_end", table["window_end"].cast(pa.timestamp("us", "UTC")))


def test_the_times_of_files_follow_each_other_and_their_rows_are_counted_by_window(tmp_path: Path) -> None:
    expected = FILES.written(tmp_path, 0)
    times = pa.concat_tables([pq.read_table(path) for path in sorted(tmp_path.iterdir())])["time"]
    micros = times.cast(pa.int64()).to_pylist()
    assert micros == sorted(micros)
    assert [int(counts.sum()) for counts in expected.counts.values()] == [200, 200]
    assert all(counts[0] > 90 for counts in expected.counts.values())
    assert min(expected.counts) == round((FILES.start + 10.0) * MICROS)


def test_a_count_that_is_wrong_and_a_window_that_is_missing_are_noticed(tmp_path: Path) -> None:
    expected = FILES.written(tmp_path, 0)
    right = counted(expected)
    expected.check("right", right, all_of=True)
    with pytest.raises(AssertionError, match="wrong counts"):
        expected.check("less", right.slice(1), all_of=False)
    first = right.filter(pa.array([end == right["window_end"][0] for end in right["window_end"]]))
    expected.check("one window", first, all_of=False)
    with pytest.raises(AssertionError, match="1 windows of 2"):
        expected.check("one window", first, all_of=True)
    arrivals = Arrivals([(1.0, right), (2.0, right.slice(len(right) - 1))])
    assert sorted(arrivals.by_window().values()) == [1.0, 2.0], "a window has come with the last of its rows"
