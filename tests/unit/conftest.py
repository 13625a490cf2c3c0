"""Unit tests know no Ray, no Spark, no JVM and no waiting: one that reaches for any of these fails and says so."""

import builtins
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import Any

import pytest
from kafka_broker import kafka_broker

from experiments.s3_server import s3_server

_PACKAGES = {"ray", "pyspark"}
_PICKLING = {"cloudpickle", "arrow_serialization"}
"""A library that both bring a copy of, and what Ray's copy needs once Ray has been imported in this process."""

_SPARK_PROGRAMS = {"spark-submit", "spark-class"}


@pytest.fixture(scope="session")
def s3_port() -> Iterator[int]:
    """That of a server with the buckets `bucket`, for checkpoints, and `results`."""
    with s3_server("bucket", "results") as port:
        yield port


@pytest.fixture(scope="session")
def kafka() -> Iterator[str]:
    """The address of a broker."""
    with kafka_broker() as address:
        yield address


@pytest.fixture(params=["local", "simulated"])
def backend(request: pytest.FixtureRequest) -> Any:
    """Runs jobs in this process: the local one, and a simulation of a cluster."""
    from dpa.testing import LocalBackend
    from experiments.simulation.backend import SimulatedBackend

    return LocalBackend() if request.param == "local" else SimulatedBackend(seed=1)


@pytest.fixture(autouse=True)
def _nothing_heavy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guard imports, sleeping and processes while a test runs; also packages that are imported already are refused."""
    real_import, real_popen, real_sleep = builtins.__import__, subprocess.Popen.__init__, time.sleep

    def guarded_import(name: str, *details: Any, **more: Any) -> Any:
        level = details[3] if len(details) > 3 else more.get("level", 0)
        wanted = details[2] if len(details) > 2 else more.get("fromlist")
        if _PICKLING & {*name.split("."), *(wanted or ())}:
            with pytest.MonkeyPatch.context() as unguarded:
                unguarded.setattr(builtins, "__import__", real_import)
                return real_import(name, *details, **more)
        if _in_the_test() and level == 0 and name.partition(".")[0] in _PACKAGES:
            pytest.fail(f"a unit test must not import {name}: this belongs into tests/integration")
        return real_import(name, *details, **more)

    def guarded_popen(self: Any, args: Any, *details: Any, **more: Any) -> None:
        if _in_the_test() and _starts_a_jvm(args):
            pytest.fail(f"a unit test must not start a JVM ({args}): this belongs into tests/integration")
        real_popen(self, args, *details, **more)

    def no_sleep(seconds: float) -> None:
        if _in_the_test():
            pytest.fail(f"a unit test must not sleep ({seconds} s): give it a clock of its own")
        real_sleep(seconds)

    monkeypatch.setattr(builtins, "__import__", guarded_import)
    monkeypatch.setattr(subprocess.Popen, "__init__", guarded_popen)
    monkeypatch.setattr(time, "sleep", no_sleep)


def _in_the_test() -> bool:
    """Whether it is the test itself: Ray and Spark of the integration tests may still have threads in this process."""
    return threading.current_thread() is threading.main_thread()


def _starts_a_jvm(command: Any) -> bool:
    """Whether a command is a real `java` (a script in its place is some test's fake), or one of Spark's that run it."""
    whole = isinstance(command, str | bytes | os.PathLike)
    program = Path(os.fsdecode(command if whole else next(iter(command), "")))
    found = which(program) if program.name == "java" else None
    if found is None:
        return program.name in _SPARK_PROGRAMS
    with Path(found).open("rb") as file:
        return file.read(2) != b"#!"
