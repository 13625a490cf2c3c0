"""A quiet Spark session that leaves nothing behind: no process, directory or signal handler. If its process is killed,
the next session removes its directory. A session that the user has started is used as it is and left running.

Also what a block changes of a running session and puts back: settings, names of views, and directories with staged
input. A job's directory is removed when the job ends, and again later if that fails. After an interruption, tasks that
have not noticed may make it again, and a JVM that shuts down does not say whether it still runs any. So the directory
is removed once more when the session's JVM has ended, or at the latest when this process ends.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from dpa._secrets import has_secret
from dpa._util.owned import OwnedDirectory, temporary_directory
from dpa._util.sharing import Shared, environment
from dpa._util.signals import interrupts_held
from dpa._util.streams import root_left_alone
from dpa.errors import TableError
from dpa.sources.paths import Location
from dpa.spark._errors import as_table_error, brief, logging_only, quoted, tidying_up
from dpa.spark._java import archive_file, java_home, jvm_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_log = logging.getLogger(__name__)

_STOP_SECONDS = 30
"""How long Spark's JVM may take to end before it is killed."""

_CHATTER = re.compile(r"^\s|^WARNING|^Picked up |^Using |^Setting |^To adjust |\bWARN\b|\bINFO\b")
"""Lines of a JVM's log that do not explain why it failed to start."""

_OPEN_COST_BYTES = 256 * 1024
"""The cost of opening a file, in bytes read instead. On a local disk it is small. With Spark's 4 MiB a task would get
only 32 files, however small, and each task writes a file of its own."""

_SCRATCH = "dpa-spark-"

_PREFIX = re.compile(r"^[\d/]+ [\d:]+ |^Exception in thread \S+ ")

_PYTHON = "PYSPARK_PYTHON"
"""Names the Python for Spark's Python UDFs."""

_PY4J_LOGGERS = ("", "py4j.java_gateway", "py4j.clientserver")

_SHARED: Shared[SparkSession] = Shared()


@contextmanager
def spark_session(
    name: str, master: str = "local[*]", conf: Mapping[str, str] | None = None, stop_seconds: float = _STOP_SECONDS
) -> Iterator[SparkSession]:
    """Yield the active Spark session, or start one and end it, with its JVM, however the block is left.

    A session started here prints nothing, has no UI, keeps its files in a temporary directory and uses UTC. Ctrl-C
    raises KeyboardInterrupt at once, even during a Spark job. Concurrent blocks in threads of this process share one
    session, which the last of them ends.

    Args:
        name: the application's name.
        master: Spark master URL. With a `local` one Spark only listens on the loopback interface.
        conf: further Spark configuration; overrides every default here.
        stop_seconds: how long the JVM may take to end before it is killed.

    A session that is active already ignores all four.

    Raises:
        TableError: there is no Java to run Spark on, or Spark does not start.
    """
    key = (master, tuple(sorted((conf or {}).items())), os.environ.get(_PYTHON), users_path())
    with _SHARED.use(lambda: _ready(name, master, conf or {}, stop_seconds), key, _lives) as session:
        yield session


def users_path() -> tuple[str, ...]:
    """The module search path, without what Spark and Ray add to it while they run."""
    return tuple(path for path in sys.path if _SCRATCH not in path and Path(path).name != "thirdparty_files")


def spark_kept() -> AbstractContextManager[None]:
    """A block in which a session that a job has started stays for the next one that would start the same."""
    return _SHARED.kept()


def _lives(session: SparkSession) -> bool:
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None and process.poll() is not None:
        return False
    active = _active()
    return active is not None and getattr(active, "_sc", None) is getattr(session, "_sc", None)


@contextmanager
def _ready(name: str, master: str, conf: Mapping[str, str], stop_seconds: float) -> Iterator[SparkSession]:
    active = _active()
    if active is not None:
        _log.debug("using the Spark session of this process")
        yield active
        return
    local, began = master.startswith("local"), time.monotonic()
    with ExitStack() as stack:
        stack.callback(_log.info, "Spark has ended")
        scratch = stack.enter_context(temporary_directory(_SCRATCH))
        stack.enter_context(root_left_alone())
        stack.enter_context(logging_only(map(logging.getLogger, _PY4J_LOGGERS), _is_news))
        stack.callback(remove_places)
        settings = {**_defaults(scratch, local=local), **conf, "spark.app.name": name, "spark.master": master}
        variables = _variables(scratch, local=local)
        gateway = stack.enter_context(_jvm(settings, variables, scratch / "jvm.log", stop_seconds))
        session = stack.enter_context(_session(settings, gateway, scratch / "jvm.log"))
        if _PYTHON in variables:
            session.sparkContext.pythonExec = variables[_PYTHON]
        _log.info("Spark is ready with master %s after %.1f s", settings["spark.master"], time.monotonic() - began)
        yield session


def _active() -> SparkSession | None:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    with as_table_error("the Spark session of this process"):
        try:
            session = SparkSession.active()
        except PySparkException:
            return None
    stopped = isinstance(session, SparkSession) and session.sparkContext._jsc is None
    return None if stopped else session


def _defaults(scratch: Path, *, local: bool) -> dict[str, str]:
    places = f'-Djava.io.tmpdir="{scratch}" -Dderby.stream.error.file="{scratch / "derby.log"}"'
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
        "spark.driver.defaultJavaOptions": f"{places} {jvm_options(archive_file())}",
    }
    if local:
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": str(scratch),
            "spark.sql.files.openCostInBytes": str(_OPEN_COST_BYTES),
            # The workers of Python UDFs run here too: they can import whatever this process can.
            "spark.executorEnv.PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }
    return settings


def _variables(scratch: Path, *, local: bool) -> dict[str, str]:
    variables = {"JAVA_HOME": str(java_home(scratch))}
    if local:
        variables[_PYTHON] = os.environ.get(_PYTHON, sys.executable)
        # A machine whose own name does not resolve must not keep Spark from starting.
        variables["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")
    return variables


@contextmanager
def _jvm(settings: Mapping[str, str], variables: Mapping[str, str], log: Path, stop_seconds: float) -> Iterator[Any]:
    """Start a JVM that logs to `log`, yield pyspark's gateway to it, and end it.

    Yields None if the process has a JVM that a stopped session of the user's has left: that one stays.
    """
    from pyspark import SparkContext

    if SparkContext._gateway is not None:
        yield None
        return
    gateway = None
    try:
        with environment(variables), _processes_noted() as started, interrupts_held(hurry=partial(_kill, started)):
            gateway = _launched(settings, log)
        yield gateway
    finally:
        if gateway is not None:
            with interrupts_held():
                _end(gateway, stop_seconds)


@contextmanager
def _processes_noted() -> Iterator[list[subprocess.Popen[bytes]]]:
    """The processes that pyspark starts in this block: it returns none before its JVM is up, seconds later."""
    from pyspark import java_gateway

    started: list[subprocess.Popen[bytes]] = []

    def noted(*command: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(*command, **options))
        return started[-1]

    module: Any = java_gateway
    before, module.Popen = module.Popen, noted
    try:
        yield started
    finally:
        module.Popen = before


def _kill(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """Kill processes that lead sessions, with their children."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _launched(settings: Mapping[str, str], log: Path) -> Any:
    from pyspark import SparkConf
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway

    launch: Any = launch_gateway
    with log.open("wb") as output:
        try:
            # What is given here everybody can read in the command line of the JVM; its context gets the rest too.
            conf = SparkConf().setAll([setting for setting in settings.items() if not has_secret(*setting)])
            # In a session of its own, so that a terminal cannot end it: that is for this process to do.
            quiet = {"stdout": output, "stderr": subprocess.STDOUT, "start_new_session": True}
            return launch(conf, popen_kwargs=quiet)
        except PySparkException:
            raise TableError(f"Spark's JVM did not start: {_complaint(log)}") from None


@contextmanager
def _session(settings: Mapping[str, str], gateway: Any, log: Path) -> Iterator[SparkSession]:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    handler, search_path = signal.getsignal(signal.SIGINT), list(sys.path)
    try:
        try:
            with as_table_error(f"Spark did not start with master {settings['spark.master']!r}"):
                context = SparkContext(conf=SparkConf().setAll(list(settings.items())), gateway=gateway)
                session = SparkSession(context)
        except TableError as error:
            raise TableError(f"{error}; its log says: {_complaint(log)}") from None
        finally:
            # Spark's own handler first asks the JVM to cancel, on the very connection that waits for the running job.
            _restore_interrupts(handler)
        yield session
    finally:
        with interrupts_held():
            _stop()
        sys.path[:] = [path for path in sys.path if path in search_path or not path.startswith(str(log.parent))]


def _restore_interrupts(handler: Any) -> None:
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)


def _is_news(record: logging.LogRecord) -> bool:
    """False for what py4j logs, partly on the root logger: it also raises that, or the connection is over anyway."""
    return record.module not in ("java_gateway", "clientserver")


def _complaint(log: Path) -> str:
    """The end of a JVM's log, without stack traces and the usual warnings."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    kept = [_PREFIX.sub("", line) for line in lines if line.strip() and not _CHATTER.search(line)]
    return brief("; ".join(kept[-3:]) or "nothing")


def _stop() -> None:
    """Stop the process's Spark session and context, even if half started or without their JVM."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    running = SparkSession._instantiatedSession or SparkContext._active_spark_context
    with warnings.catch_warnings(), tidying_up():
        warnings.simplefilter("ignore", RuntimeWarning)
        if running is not None:
            running.stop()
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def _end(gateway: Any, stop_seconds: float) -> None:
    """End a gateway's JVM, and forget it, so that the next session starts a new one."""
    from pyspark import SparkContext

    with tidying_up():
        gateway.shutdown()
    process = gateway.proc
    if process is not None:  # None: spark-submit started the JVM, and this process is its child.
        process.stdin.close()
        try:
            process.wait(stop_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    SparkContext._gateway = SparkContext._jvm = None


_TURN = threading.RLock()

Place: TypeAlias = Location | OwnedDirectory

_PLACES: list[Place] = []


@dataclass(eq=False)
class SharedSetting:
    """A setting that has its value while any block in any thread needs it: concurrent jobs share a session. `default`
    is its value in a session that does not set it."""

    name: str
    value: str
    default: str
    _shared: Shared[None] = field(default_factory=Shared, init=False)

    def of(self, spark: SparkSession) -> AbstractContextManager[None]:
        return self._shared.use(lambda: self._changed(spark))

    @contextmanager
    def _changed(self, spark: SparkSession) -> Iterator[None]:
        before = spark.conf.get(self.name, self.default) or self.default
        spark.conf.set(self.name, self.value)
        try:
            yield
        finally:
            with tidying_up():
                spark.conf.set(self.name, before)


@contextmanager
def temporary_view(frame: DataFrame, name: str) -> Iterator[None]:
    """Name a DataFrame for queries in this block; what they resolve to stays valid afterwards. Threads take turns,
    because jobs that share a session may give one name different meanings.

    The name may be any text: queries put one that is no identifier into backticks. Raises TableError if the session has
    a temporary view of that name, which is left alone.
    """
    with _TURN:
        with as_table_error(f"the view {name!r}"):
            frame.createTempView(quoted(name))
        try:
            yield
        finally:
            with tidying_up():
                frame.sparkSession.catalog.dropTempView(name)


def add_place(place: Place) -> None:
    """Note a directory before anything is written to it."""
    _PLACES.append(place)


def remove_place(place: Place, *, for_good: bool) -> None:
    """Remove a directory. It stays noted if that fails, or if it is not `for_good` because tasks may still write
    there."""
    if _removed(place) and for_good:
        _PLACES.remove(place)


def keep_place(place: Place) -> None:
    _PLACES.remove(place)


def remove_places() -> None:
    """Remove what is left of the noted directories. What cannot be removed stays noted."""
    _PLACES[:] = [place for place in _PLACES if not _removed(place)]


def _removed(place: Place) -> bool:
    try:
        place.remove_directory()
    except OSError:
        return False
    return True


def _forget() -> None:
    """Forget the parent's directories in a forked process, which may end at any time."""
    _PLACES.clear()


os.register_at_fork(after_in_child=_forget)


@atexit.register
def _at_exit() -> None:
    remove_places()
    for place in _PLACES:
        warnings.warn(f"{place.name}, where input was staged, could not be removed", RuntimeWarning, stacklevel=2)
