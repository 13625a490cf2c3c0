"""The JVM of a Spark session: started and ended, or borrowed from a keeper and given back."""

import hashlib
import json
import logging
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from time import time_ns
from typing import Any

from dpa._secrets import has_secret
from dpa._util.lending import Loan
from dpa._util.sharing import environment
from dpa._util.signals import interrupts_held
from dpa.errors import TableError
from dpa.spark._errors import as_table_error, brief, tidying_up
from dpa.spark._java import java_home

_CHATTER = re.compile(r"^\s|^WARNING|^Picked up |^Using |^Setting |^To adjust |\bWARN\b|\bINFO\b")
"""Lines of a JVM's log that do not explain why it failed to start."""

_PREFIX = re.compile(r"^[\d/]+ [\d:]+ |^Exception in thread \S+ ")
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"  # where pyspark looks for a JVM that it is to use

_OF_NO_MATTER = ("_", "SHLVL", "OLDPWD", "SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE", "PYTHONBREAKPOINT")
"""Variables that shells set for each command, and pyspark and Ray in each process; Ray's own are none of Spark's."""

_OF_PY4J = ["GATEWAY_SERVER", "t", "j"]
"""The objects of a JVM that py4j itself has: its server, its entry point, and its view of packages."""


def has_jvm() -> bool:
    """Whether this process has a JVM of Spark's, or was started by one."""
    from pyspark import SparkContext

    return SparkContext._gateway is not None or _PORT in os.environ


def key_of(master: str, conf: Mapping[str, str]) -> str:
    """The same for two sessions that one JVM can serve: with its options, environment and working directory."""
    names = sorted(name for name in os.environ if name not in _OF_NO_MATTER and not name.startswith("RAY_"))
    what = [master, sorted(conf.items()), [(name, os.environ[name]) for name in names], str(Path.cwd())]
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()


@contextmanager
def jvm(
    settings: Mapping[str, str], variables: Mapping[str, str], log: Path, stop_seconds: float, loan: Loan | None = None
) -> Iterator[Any]:
    """Start a JVM that logs to `log`, or take the one of a loan; yield pyspark's gateway to it, and end it, unless the
    loan's lender is to keep it.

    Yields None if the process has a JVM that a stopped session of the user's has left: that one stays."""
    from pyspark import SparkContext

    if SparkContext._gateway is not None:
        yield None
        return
    gateway = None
    known: AbstractContextManager[None] = nullcontext()
    if loan is not None and loan.note is not None:
        known = environment({_PORT: str(loan.note["port"]), _SECRET: loan.note["secret"]})
    else:
        variables = {**variables, "JAVA_HOME": str(java_home(log.parent))}
    start = subprocess.Popen if loan is None else partial(loan.start, log)
    noted = _processes_noted(start, variables)
    try:
        with known, noted as started, interrupts_held(hurry=partial(_kill, started)):
            gateway = _launched(settings, log)
        gateway.proc = gateway.proc or loan  # None: spark-submit started the JVM, and this process is its child
        # The JVM reports the number of each callback that it has collected, also of those of earlier borrowers.
        gateway.gateway_property.pool.next_id = time_ns()
        yield gateway
    finally:
        if gateway is not None:
            with interrupts_held():
                (_end if loan is None else _leave)(gateway, stop_seconds)
            SparkContext._gateway = SparkContext._jvm = None


@contextmanager
def _processes_noted(start: Callable[..., Any], variables: Mapping[str, str]) -> Iterator[list[Any]]:
    """Have pyspark start processes so in this block, with these variables, and note them: it returns none before its
    JVM is up, seconds later."""
    from pyspark import java_gateway

    started: list[Any] = []

    def noted(*command: Any, env: Mapping[str, str], **options: Any) -> Any:
        started.append(start(*command, env={**env, **variables}, **options))
        return started[-1]

    module: Any = java_gateway
    before, module.Popen = module.Popen, noted
    try:
        yield started
    finally:
        module.Popen = before


def _kill(processes: Iterable[Any]) -> None:
    """Kill processes that lead sessions, with their children."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _launched(settings: Mapping[str, str], log: Path) -> Any:
    from pyspark import SparkConf
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway

    launch: Any = launch_gateway
    with log.open("ab") as output, as_table_error("Spark's JVM"):
        try:
            # What is given here everybody can read in the command line of the JVM; its context gets the rest too.
            conf = SparkConf().setAll([setting for setting in settings.items() if not has_secret(*setting)])
            # In a session of its own, so that a terminal cannot end it: that is for this process to do.
            quiet = {"stdout": output, "stderr": subprocess.STDOUT, "start_new_session": True}
            return launch(conf, popen_kwargs=quiet)
        except PySparkException:
            raise TableError(f"Spark's JVM did not start: {complaint(log)}") from None


def complaint(log: Path) -> str:
    """The end of a JVM's log, without stack traces and the usual warnings."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    kept = [_PREFIX.sub("", line) for line in lines if line.strip() and not _CHATTER.search(line)]
    return brief("; ".join(kept[-3:]) or "nothing")


def is_news(record: logging.LogRecord) -> bool:
    """False for what py4j logs, partly on the root logger: it also raises that, or the connection is over anyway."""
    return record.module not in ("java_gateway", "clientserver")


def is_idle(context: Any) -> bool:
    """Whether none of a context's jobs runs, and no task: one that was cancelled runs until it notices."""
    tracker = context._jsc.sc().statusTracker()
    return not len(tracker.getActiveJobIds()) and not any(each.numRunningTasks() for each in tracker.getExecutorInfos())


def give_back(gateway: Any) -> None:
    """Leave a borrowed JVM, whose context has stopped, to the next borrower, without the objects of this one."""
    from py4j.java_gateway import JavaObject  # type: ignore[import-untyped]

    with tidying_up():
        server = JavaObject(_OF_PY4J[0], gateway._gateway_client)
        server.getGateway().getBindings().keySet().retainAll(_OF_PY4J)
        where = gateway.gateway_parameters
        gateway.proc.give_back({"port": where.port, "secret": where.auth_token})


def _leave(gateway: Any, _stop_seconds: float) -> None:
    """Forget a borrowed JVM. Its lender ends it if it was not given back."""
    from py4j.java_gateway import quiet_shutdown

    server = gateway.__dict__.get("_callback_server")
    for connection in [*gateway._gateway_client.deque, *(() if server is None else server.connections)]:
        quiet_shutdown(connection.socket)  # else closing it waits for the thread that reads from it
    with tidying_up():
        gateway.close(keep_callback_server=True)
        gateway.shutdown_callback_server()
    gateway._gateway_client.is_connected = False  # or objects that go later would connect again to say so


def _end(gateway: Any, stop_seconds: float) -> None:
    with tidying_up():
        gateway.shutdown()
    if (process := gateway.proc) is not None:
        process.stdin.close()
        try:
            process.wait(stop_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
