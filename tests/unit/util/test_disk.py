"""A full disk, as each library reports it, on the first line of what is said."""

import errno
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpa._util.disk import is_full, why, writing
from dpa.errors import JobFailedError

SPARK = """An error occurred while calling o42.parquet.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 0.0 failed 1 times
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:1)
Caused by: java.io.IOException: No space left on device
"""
RAY = "Failed to put object.\nThe local object store is full and the local disk's utilization is over capacity (95%)."


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device", "a/b"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        OSError("[Errno 28] Error writing bytes to file. Detail: [errno 28] No space left on device"),
        RuntimeError(SPARK),
        RuntimeError(RAY),
    ],
    ids=["errno", "quota", "Arrow", "Spark", "Ray"],
)
def test_a_full_disk_is_known_and_named_first(error: Exception) -> None:
    assert is_full(error)
    assert why(error).startswith("the disk is full: ")
    assert "\n" not in why(error)


def test_other_errors_are_not_a_full_disk() -> None:
    error = PermissionError(errno.EACCES, "Permission denied", "a")
    assert not is_full(error)
    assert why(error) == "[Errno 13] Permission denied: 'a'"


def test_what_cannot_be_written_fails_the_job_and_is_named(tmp_path: Path) -> None:
    place = tmp_path / "none" / "such.parquet"
    with pytest.raises(JobFailedError, match=rf"No such file or directory.*, writing {place}"), writing(place):
        place.write_text("")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_what_arrow_says_of_a_full_device_is_known() -> None:
    full = pa.OSFile("/dev/full", mode="w")  # not its name: pyarrow removes what it could not write
    with pytest.raises(JobFailedError, match=r"^the disk is full: .*, writing a$"), writing("a"), full:
        pq.write_table(pa.table({"a": list(range(100_000))}), full)
