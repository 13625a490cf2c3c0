"""Secrets of a real job: none is in anything that the job writes or shows, nor in the command line of a process."""

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from dpa import RunningJob
from dpa.checkpoints import CheckpointStore
from dpa.errors import CheckpointError
from dpa.runtime.cluster import rays_directory

EXECUTORS = '''
import os, time
from pathlib import Path
import dpa

class Client(dpa.Mapper):
    """Shows its token to whoever looks, and fails with it."""

    def __init__(self, token):
        self.token = token

    def map(self, row):
        yield row["KIND"], 1

class Count(dpa.Reducer):
    def __init__(self, api_key):
        self.api_key = api_key

    def zero(self):
        return 0

    def reduce(self, state, value):
        time.sleep(0.01)
        if Path(os.environ["LEAK_SEEN"]).exists():
            where = f"https://ann:{os.environ['LEAK_PASSWORD']}@api.example?sig=signed-by-me"
            raise ValueError(f"{where} refused {self.api_key} and {os.environ['LEAK_API_KEY']}")
        return state + value

    def merge(self, left, right):
        return left + right
'''

JOB = """
name: leaks
input:
  format: jdbc
  options:
    url: "jdbc:derby:memory:leaks;create=true;user=ann;password=${env.LEAK_PASSWORD}"
    dbtable: "(SELECT a.TABLETYPE AS KIND FROM SYS.SYSTABLES a, SYS.SYSTABLES b, SYS.SYSTABLES c) t"
    driver: org.apache.derby.jdbc.EmbeddedDriver
    password: in-options-7
mapper: {use: "leaky:Client", args: {token: in-arguments-8}}
reducer: {use: "leaky:Count", args: {api_key: for-reducers-9}}
parallelism: {mappers: 1, reducers: 2}
limits: {batch_records: 10, quantum_records: 5}
checkpoint: {path: saved, every: 0.2s}
recovery: {attempts: 0}
spark: {master: "local[1]", conf: {spark.hadoop.fs.s3a.secret.key: for-storage-10, spark.some.password: for-spark-11}}
"""

SECRETS = ["from-environment-5", "key-of-environment-6", "in-options-7", "in-arguments-8", "for-reducers-9"]
SECRETS += ["for-storage-10", "for-spark-11", "signed-by-me"]


def has_checkpoint(place: Path) -> bool:
    """Whether one has been written there."""
    try:
        store = CheckpointStore.open(str(place))
        return any(store.chain(job).newest() for job in store.jobs())
    except CheckpointError:  # it is being made
        return False


def test_no_secret_is_in_what_a_job_writes_or_shows(tmp_path: Path) -> None:
    (tmp_path / "leaky.py").write_text(EXECUTORS, encoding="utf-8")
    (tmp_path / "job.yaml").write_text(JOB, encoding="utf-8")
    job = subprocess.Popen(
        [sys.executable, "-m", "dpa.run", "job.yaml", "--report", "report", "--log", "debug"],
        cwd=tmp_path,
        env={
            **os.environ,
            "LEAK_PASSWORD": SECRETS[0],
            "LEAK_API_KEY": SECRETS[1],
            "LEAK_SEEN": str(tmp_path / "seen"),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    commands, listed = set(), set()
    runs, saved = Path(rays_directory()), tmp_path / "saved"
    while job.poll() is None:
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):  # it has ended meanwhile
                commands.add(process.read_text(errors="replace"))
        asked = (run.status() for run in RunningJob.all() if run.name.startswith(f"leaks-{job.pid}"))
        listed.update(repr(status) for status in asked if status is not None)
        if listed and any("reducer 0" in command for command in commands) and has_checkpoint(saved):
            (tmp_path / "seen").touch()  # whereupon the job fails
        time.sleep(0.1)
    shown = job.communicate()[0]
    assert job.returncode == 1 and "refused *** and ***" in shown, shown
    assert any("org.apache.spark.deploy.SparkSubmit" in command for command in commands)
    assert any("reducer 0" in command for command in commands) and listed
    files = [path for place in ("report", "saved") for path in (tmp_path / place).rglob("*") if path.is_file()]
    kinds = {path.parent.name for path in files}
    assert {"report", "events", "chain", "files"} <= kinds
    logs = [path for path in runs.glob(f"session_*_{job.pid}/logs/**/*") if path.is_file()]
    assert any(path.name.startswith("worker-") for path in logs)
    written = {str(path): path.read_bytes() for path in files + logs}
    seen = {"screen": [shown], "commands": commands, "status": listed}
    written |= {place: "\n".join(texts).encode() for place, texts in seen.items()}
    found = [(place, secret) for place, content in written.items() for secret in SECRETS if secret.encode() in content]
    assert not found
    private = [path for path in files if path.parent.name in ("events", "chain", "files")] + [runs.parent]
    assert not [path for path in private if path.stat().st_mode & 0o077]
