"""A job on real Ray whose broker or storage is out of reach for a while says so, waits, and is right."""

import os
import signal
from collections import Counter

import pytest
from kafka_broker import kafka_broker, make_topic, produce
from observers_for_tests import pid_of

from dpa import Job
from dpa.errors import JobFailedError
from dpa.telemetry.observers import Observer
from dpa.telemetry.tracker import TrackedSnapshot
from experiments.chaos.world import Proxy
from experiments.s3_server import s3_server, uri_of

pytestmark = pytest.mark.usefixtures("ray")

ROWS = 6_000


class SilentBroker(Observer):
    """Stops the broker once some records are read, and lets it go on once the job says that it waits."""

    def __init__(self, servers: str, pid: int) -> None:
        import psutil  # Ray brings it

        self.servers, self.broker = servers, psutil.Process(pid)
        self.said: list[str] = []
        self.produced: Counter[str] = Counter()
        self.is_stopped = self.is_done = False

    def produce(self) -> None:
        keys = [f"key {number % 7}" for number in range(40)]
        produce(self.servers, "visits", [key.encode() for key in keys])
        self.produced.update(keys)

    def update(self, snapshot: TrackedSnapshot) -> None:
        read = snapshot.records.read
        if not self.is_stopped and 0 < read == self.produced.total():
            self.is_stopped = True
            self.broker.suspend()
        elif not self.produced:
            self.produce()
        self.is_done = any("continues" in text for text in self.said) and read == self.produced.total()

    def warn(self, message: str) -> None:
        self.said.append(message)
        if " waits: Kafka at " in message:
            self.broker.resume()
            self.produce()


def job_of(servers: str, **kafka: object) -> Job:
    read = {"format": "kafka", "kafka": {"servers": servers, "topic": "visits", "value": "string", **kafka}}
    counts = {"from": "visits", "key_by": "value", "value": [], "reduce": "count"}
    return Job(name="silent", stages={"visits": {"read": read}, "counts": counts}, until={"seconds": 200})


def test_a_job_waits_for_a_broker_that_does_not_answer() -> None:
    with kafka_broker() as servers:
        make_topic(servers, "visits")
        silent = SilentBroker(servers, listener(servers))
        result = job_of(servers).run(silent, closes=lambda: silent.is_done)
        assert dict(zip(*result.table().to_pydict().values(), strict=True)) == silent.produced
        waits, goes_on = (text for text in silent.said if "waits" in text or "continues" in text)
        assert waits.startswith(f"coordinator waits: Kafka at {servers}: ")
        assert goes_on.startswith("coordinator continues: what did not answer answers again, after ")
        assert result.report.recoveries == () and waits in result.report.warnings
        load = next(stage.load for stage in result.report.stages if stage.kind == "source")
        assert load.waiting > load.busy + load.blocked, load
        assert load.busy + load.blocked + load.waiting + load.idle == pytest.approx(1.0)

        impatient = SilentBroker(servers, listener(servers))
        impatient.produced.update(silent.produced)
        impatient.warn = lambda message: None
        with pytest.raises(JobFailedError, match=f"Kafka at {servers}"):
            job_of(servers, patience="1s").run(impatient, closes=lambda: impatient.is_done)
        impatient.broker.resume()


def listener(servers: str) -> int:
    """The process that listens there."""
    import psutil

    port = int(servers.rpartition(":")[2])
    for process in psutil.Process().children(recursive=True):
        if any(each.laddr.port == port and each.status == "LISTEN" for each in process.net_connections("tcp")):
            return process.pid
    raise AssertionError(servers)


class Away(Observer):
    """Cuts a job off from its storage behind a checkpoint and kills its coordinator, and lets it through again once the
    job says that it waits."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.said: list[str] = []
        self.is_away = False

    def update(self, snapshot: TrackedSnapshot) -> None:
        if snapshot.checkpoints is not None and snapshot.checkpoints.written and not self.said:
            self.said.append("away")
            self.is_away = True
            self.proxy.kill()
            os.kill(pid_of("away", "coordinator", snapshot.generation), signal.SIGKILL)

    def warn(self, message: str) -> None:
        self.said.append(message)
        if self.is_away and message.startswith("the job waits: "):
            self.is_away = False
            self.proxy.start()


def test_an_outage_of_the_storage_of_checkpoints_and_results_takes_none_of_the_attempts() -> None:
    with s3_server("bucket") as port:
        proxy = Proxy(port)
        try:
            away = Away(proxy)
            place = uri_of(proxy.port, "bucket/counts")
            generated = {"format": "generated", "use": "jobs.clicks:Clicks", "rows": ROWS, "rate": 1_500}
            counts = {"from": "clicks", "key_by": "user", "value": [], "reduce": "count"}
            counts |= {"write": {"path": place, "publish": {"mode": "table", "every": "300ms"}}}
            result = Job(
                name="away",
                stages={"clicks": {"read": generated}, "counts": counts},
                recovery={"backoff": "100ms", "attempts": 1},
                checkpoint={"path": uri_of(proxy.port, "bucket/saved"), "every": "300ms"},
            ).run(away)
            assert sum(result.table("counts")["count"].to_pylist()) == ROWS
        finally:
            proxy.kill()
    assert any(text.startswith("the job continues: ") for text in away.said), away.said
