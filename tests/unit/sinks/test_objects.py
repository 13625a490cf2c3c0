"""Results in object storage: a server in a process of its own, over HTTP."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from output_samples import check_outputs, job, publication

from dpa import Job
from dpa.config import parse
from dpa.errors import ConfigError, JobFailedError, TableError
from dpa.sinks.objects import ResultFiles
from dpa.sinks.sink import Target
from dpa.sources.manifest import MANIFEST
from dpa.sources.parquet import parquet_table
from dpa.storage import S3Files
from dpa.testing import LocalBackend
from experiments.s3_server import client, keys, uri_of


class Died(BaseException):
    """The process was killed."""


@pytest.fixture
def place(s3_port: int, tmp_path: Path) -> str:
    """A place of this test's own."""
    return uri_of(s3_port, f"results/{tmp_path.name}")


def sink_at(uri: str, mode: str = "overwrite") -> ResultFiles:
    """A sink, with the connections of those before it at that place, which take time."""
    sink = ResultFiles(Target(uri, mode))
    known = CONNECTED.setdefault(uri, sink._files)
    vars(sink._files).update({"_client": known._client, "arrow": known.arrow})
    return sink


CONNECTED: dict[str, S3Files] = {}


def write(uri: str, value: int, mode: str = "overwrite", tasks: int = 2) -> tuple[str, ...]:
    """A job, from its beginning to its end."""
    sink = sink_at(uri, mode)
    sink.begin()
    try:
        staged = [sink.stage(pa.table({"value": [value]}), task, 0) for task in range(tasks)]
        return tuple(sink.commit(staged, 1, 0.0, is_last=True))
    finally:
        sink.abort()


def values(uri: str) -> list[int]:
    """What a reader finds."""
    found: list[int] = parquet_table([uri]).read()["value"].to_pylist()
    return found


def names(port: int, uri: str) -> set[str]:
    """What is there."""
    prefix = uri.partition("@results/")[2].partition("?")[0]
    return {key.removeprefix(f"{prefix}/") for key in keys(port, "results", f"{prefix}/")}


@contextmanager
def die_after(number: int, done: list[int]) -> Iterator[None]:
    """Die after the storage's request of that number; no later one is made."""

    def live() -> None:
        if len(done) >= number:
            raise Died

    def around(real: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*arguments: Any, **options: Any) -> Any:
            live()
            found = real(*arguments, **options)
            done.append(1)
            live()
            return found

        return operation

    with pytest.MonkeyPatch.context() as patch:
        for name in ("put", "get", "names", "delete", "writing"):
            patch.setattr(S3Files, name, around(getattr(S3Files, name)))
        yield


def test_between_whichever_requests_a_job_dies_readers_see_one_whole_result_and_the_next_job_cleans_up(
    s3_port: int, place: str
) -> None:
    number, is_new = 0, []
    done = [0]
    write(place, 0)
    there = [0, 0]
    while len(done) >= number:
        number, done = number + 1, []
        with die_after(number, done), suppress(Died):
            write(place, number, tasks=1 + number % 2)
        found = values(place)
        is_new.append(found == [number] * (1 + number % 2))
        assert is_new[-1] or found == there
        there = found
    turn = is_new.index(True)
    assert 6 < turn < number - 2
    assert is_new == [False] * turn + [True] * (number - turn)
    files = write(place, 1)
    assert names(s3_port, place) == {MANIFEST, *files}


@pytest.mark.parametrize("lost", ["the request", "the answer"])
def test_a_commit_of_which_nothing_is_heard_is_looked_for(s3_port: int, place: str, lost: str) -> None:
    write(place, 1)
    sink = sink_at(place)
    sink.begin()
    staged = [sink.stage(pa.table({"value": [2]}), 0, 0)]
    put = S3Files.put

    def failing(self: S3Files, *arguments: Any) -> str | None:
        if lost == "the answer":
            put(self, *arguments)
        raise TableError("the connection was closed")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(S3Files, "put", failing)
        if lost == "the answer":
            assert sink.commit(staged, 1, 0.0, is_last=True) == tuple(staged)
        else:
            with pytest.raises(TableError, match="was closed"):
                sink.commit(staged, 1, 0.0, is_last=True)
    sink.abort()
    assert values(place) == ([2] if lost == "the answer" else [1, 1])
    assert len(names(s3_port, place)) == 1 + len(values(place))


def test_a_commit_that_arrives_after_its_job_has_given_up_is_refused(s3_port: int, place: str) -> None:
    write(place, 1)
    sink = sink_at(place)
    sink.begin()
    staged, late = [sink.stage(pa.table({"value": [2]}), 0, 0)], ResultFiles(Target(place))
    vars(late).update(vars(sink))
    sink.abort()
    with pytest.raises(TableError, match="another job has begun to write to"):
        late.commit(staged, 1, 0.0, is_last=True)
    assert (values(place), len(names(s3_port, place))) == ([1, 1], 3)


def test_of_two_jobs_the_last_to_begin_publishes_and_neither_harms_the_other(s3_port: int, place: str) -> None:
    first, last = sink_at(place, "error"), sink_at(place, "error")
    first.begin()
    of_first = [first.stage(pa.table({"value": [1]}), 0, 0)]
    last.begin()
    of_last = [last.stage(pa.table({"value": [2]}), 0, 0)]
    with pytest.raises(TableError, match=r"to s3://results/\S+: of two jobs .* the last one to begin publishes"):
        first.commit(of_first, 1, 0.0, is_last=True)
    first.stage(pa.table({"value": [1]}), 1, 0)
    last.commit(of_last, 1, 0.0, is_last=True)
    assert names(s3_port, place) == {MANIFEST, *of_last}, "what the other has staged goes with its claim"
    late = first.stage(pa.table({"value": [1]}), 2, 0)
    first.abort()
    last.abort()
    assert values(place) == [2]
    assert names(s3_port, place) == {MANIFEST, *of_last, late}, "a task that was late leaves a file that nobody reads"
    files = write(place, 3, tasks=1)
    assert names(s3_port, place) == {MANIFEST, *files}, "the next job has removed it"


def test_only_a_result_is_replaced_and_only_if_that_is_asked_for(s3_port: int, place: str) -> None:
    write(place, 1, "error")
    with pytest.raises(TableError, match=r"is not empty: set output.mode to `overwrite`"):
        write(place, 2, "error")
    s3, prefix = client(s3_port), place.partition("@results/")[2].partition("?")[0]
    s3.put_object(Bucket="results", Key=f"{prefix}/data.csv", Body=b"")
    with pytest.raises(TableError, match=r"holds data.csv, no file of a result"):
        write(place, 2)
    s3.delete_object(Bucket="results", Key=f"{prefix}/data.csv")
    s3.delete_object(Bucket="results", Key=f"{prefix}/{MANIFEST}")
    with pytest.raises(TableError, match=r"holds part-00000-\w+.parquet and 1 more, no file of a result"):
        write(place, 2)


def test_readers_go_by_the_manifest(s3_port: int, place: str) -> None:
    files = write(place, 1)
    sink = sink_at(place)
    sink.begin()
    sink.stage(pa.table({"value": [2]}), 0, 0)
    for recursive in (False, True):
        assert parquet_table([place], recursive=recursive).read()["value"].to_pylist() == [1, 1]
    prefix = place.partition("@results/")[2].partition("?")[0]
    client(s3_port).delete_object(Bucket="results", Key=f"{prefix}/{files[0]}")
    with pytest.raises(TableError, match=files[0]):
        parquet_table([place])
    new = place.replace("?", "/new?")
    ResultFiles(Target(new)).begin()
    with pytest.raises(TableError, match=rf"s3://results/{prefix}/new/{MANIFEST} names no files: no job .* has ended"):
        parquet_table([new])
    for text, why in ((b"[]", "is no manifest"), (b'{"schema": "x", "files": []}', "of another version, 'x'")):
        client(s3_port).put_object(Bucket="results", Key=f"{prefix}/new/{MANIFEST}", Body=text)
        with pytest.raises(TableError, match=why):
            parquet_table([new])


def test_a_storage_without_conditional_puts_is_refused(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write(place, 1)
    put, get = S3Files.put, S3Files.get
    monkeypatch.setattr(
        S3Files, "put", lambda self, path, data, etag=None: put(self, path, data, (get(self, path) or "??")[1])
    )
    with pytest.raises(TableError, match="ignores If-Match"):
        ResultFiles(Target(place, "overwrite")).begin()
    assert values(place) == [1, 1]


# --- jobs


def count(path: str, words: Any, **sections: Any) -> Any:
    output = {"path": path, "mode": "overwrite"}
    return Job(input=words, key="word", reducer="count", output=output, **sections).run(backend=LocalBackend())


def test_a_job_writes_there_and_another_reads_what_it_wrote(place: str) -> None:
    result = count(place, pa.table({"word": ["a", "b", "a"]}))
    shown = "s3://" + place.partition("@")[2].partition("?")[0]
    (output,) = (stage.output for stage in result.report.stages if stage.output is not None)
    assert (output.path, output.rows, result.table().num_rows) == (shown, 2, 2)
    stages = json.dumps([dataclasses.asdict(stage) for stage in result.report.stages])
    assert shown in stages and "hidden" not in stages
    again = Job(
        input={"format": "parquet", "path": place},
        key="word",
        value="count",
        reducer={"use": "sum", "args": {"column": "count"}},
    )
    found = again.run(backend=LocalBackend()).table().to_pydict()
    assert dict(zip(*found.values(), strict=True)) == {"a": 2, "b": 1}
    later = count(place, pa.table({"word": ["c"]}))
    assert later.table().num_rows == 1
    with pytest.raises(TableError, match=f"{shown}: the result of job was replaced or removed"):
        result.table()


def test_a_death_of_the_job_leaves_nothing_of_what_was_staged(s3_port: int, place: str) -> None:
    with publication(job(place, "error")) as output:
        before = output.sink.stage(pa.table({"value": [1]}), 0, 0)
        output.restart()
        with pytest.raises(FileNotFoundError):
            output.sink.read([before])
        staged = [output.sink.stage(pa.table({"value": [2]}), 0, 0)]
        assert output.sink.read(staged)["value"].to_pylist() == [2]
        assert output.commit(staged) == tuple(staged)
    assert names(s3_port, place) == {MANIFEST, *staged}


def test_a_place_is_refused_without_its_secrets(s3_port: int, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    shown = "s3://" + place.partition("@")[2].partition("?")[0]
    below, parquet = place.replace("?", "/x?"), {"format": "parquet"}
    two = {
        "read": {"read": {"format": "given"}},
        "one": {"from": "read", "write": place},
        "two": {"from": "read", "write": below},
    }
    for file, why in [
        (partial(job, uri_of(s3_port, "none/x")), r"output.path: .*bucket does not exist, at s3://none/x"),
        (partial(job, uri_of(1, "results/x")), r"output.path: Could not connect .*, at s3://results/x"),
        (partial(job, "s3://KEY:hid/den@results/x"), r"output.path: .* each / in KEY or SECRET written as %2F"),
        (
            partial(job, "gs://me:wordless@x/y?token=wordless"),
            r"gs://x/y is a URI; name a directory, .* s3://BUCKET/PREFIX",
        ),
        (
            partial(job, place, input={**parquet, "path": below}),
            f"{shown} and the input {shown}/x lie one in the other",
        ),
        (
            partial(parse, {"stages": two}, origin="job"),
            f"{shown}/x and {shown}, of stages.one.write.path, lie one in the other",
        ),
    ]:
        with pytest.raises(ConfigError, match=why) as refused:
            check_outputs(file())
        assert not any(secret in str(refused.value) for secret in ("hidden", "wordless"))


def test_a_file_uri_is_a_directory(tmp_path: Path) -> None:
    file = job(f"file://{tmp_path}/out")
    check_outputs(file)
    with publication(file) as output:
        output.commit([output.sink.stage(pa.table({"value": [1]}), 0, 0)])
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["_job.yaml", "part-00000.parquet"]


def test_a_file_of_a_directory_is_read_without_what_python_would_have_to_free(tmp_path: Path) -> None:
    """Arrow's threads free it when they come to it, and abort a process whose interpreter has ended by then."""
    (tmp_path / "one").write_bytes(b"some")
    files = ResultFiles(Target(str(tmp_path)))._files
    with files.reading("one") as file, files.reading("two") as missing:
        assert isinstance(file, pa.NativeFile)
        assert not isinstance(file, pa.PythonFile)
        assert file.read() == b"some"
    assert missing is None


def test_a_result_that_another_job_has_taken_over_fails_the_job(place: str) -> None:
    with publication(job(place)) as output:
        ResultFiles(Target(place)).begin()
        with pytest.raises(JobFailedError, match=r"output.path: another job has begun to write to"):
            output.commit([])
