"""A package of somebody else's, installed as pip installs it, has a job read streams of a real server of Redis."""

from collections import Counter
from pathlib import Path

import pytest
from observers_for_tests import Killing, rows_read
from redis import Redis
from redis_server import installed, redis_server

from dpa import Job
from dpa.telemetry.tracker import TrackedSnapshot

pytestmark = pytest.mark.usefixtures("ray")

STREAMS = ("visits", "clicks")
TURNS = 6


class Writer(Killing):
    """Adds entries to both streams whenever it looks, and kills a task that reads, behind a checkpoint. When all are
    read, inputs may be closed."""

    def __init__(self, url: str) -> None:
        super().__init__("streams", "entries 0")
        self.redis = Redis.from_url(url)
        self.added: Counter[tuple[str, str]] = Counter()
        self.turn = 0
        self.is_done = False

    def update(self, snapshot: TrackedSnapshot) -> None:
        if self.turn < TURNS or self.victims:
            self.turn += 1
            for number in range(200):
                stream, page = STREAMS[number % 2], f"page {(self.turn + number) % 7}"
                self.redis.xadd(stream, {"page": page, "seconds": 1})
                self.added[stream, page] += 1
        elif snapshot.checkpoints is not None:
            self.is_done = rows_read(snapshot) >= self.added.total()
        self.kill_next(snapshot)


def test_streams_are_read_once_by_what_a_package_brings_though_a_reader_dies(tmp_path: Path) -> None:
    with redis_server() as url:
        writer = Writer(url)
        args = {"url": url, "streams": list(STREAMS), "columns": {"page": "string", "seconds": "int64"}}
        stages = {
            "entries": {"read": {"format": "feed", "use": "redis_streams", "args": args}},
            "seconds": {
                "from": "entries",
                "key_by": ["stream", "page"],
                "value": "seconds",
                "reduce": {"use": "sum", "args": {"column": "seconds"}},
                "parallelism": 1,
            },
        }
        result = Job(
            name="streams",
            stages=stages,
            checkpoint={"path": str(tmp_path / "checkpoints"), "every": "300ms"},
            recovery={"backoff": "100ms"},
            limits={"split_records": 50},
            until={"seconds": 200},
            python_path=[str(installed(tmp_path))],
        ).run(writer, closes=lambda: writer.is_done)
    found = {(row["stream"], row["page"]): row["seconds"] for row in result.table().to_pylist()}
    assert found == writer.added
    assert not writer.victims and [recovery.task for recovery in result.report.recoveries] == ["entries 0"]
