"""A quiet Spark session that leaves nothing behind: no process, directory or signal handler. If its process is killed,
the next session removes its directory. A session that the user has started is used as it is and left running.

Also what a block changes of a running session and puts back: settings, names of views, and directories with staged
input. A job's directory is removed when the job ends, and again later if that fails. After an interruption, tasks that
have not noticed may make it again, and a JVM that shuts down does not say whether it still runs any. So the directory
is removed once more when the session's JVM has ended, or at the latest when this process ends."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from dpa._util.lazy_pandas import without_pandas
from dpa._util.lending import Loan
from dpa._util.owned import OwnedDirectory, temporary_directory
from dpa._util.sharing import Shared
from dpa._util.signals import interrupts_held
from dpa._util.streams import root_left_alone
from dpa.errors import TableError
from dpa.sources.paths import Location
from dpa.spark._errors import as_table_error, logging_only, quoted, tidying_up
from dpa.spark._java import archive_file, jvm_options
from dpa.spark._jvm import complaint, give_back, has_jvm, is_idle, is_news, jvm, key_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_log = logging.getLogger(__name__)

_STOP_SECONDS = 30  # how long Spark's JVM may take to end before it is killed

_OPEN_COST_BYTES = 256 * 1024
"""The cost of opening a file, in bytes read instead. On a local disk it is small. With Spark's 4 MiB a task would get
only 32 files, however small, and each task writes a file of its own."""

_SCRATCH = "dpa-spark-"

_PYTHON = "PYSPARK_PYTHON"  # names the Python for Spark's Python UDFs

_PY4J_LOGGERS = ("", "py4j.java_gateway", "py4j.clientserver")

_SHARED: Shared[SparkSession] = Shared()

Lend: TypeAlias = Callable[[str], AbstractContextManager[Loan | None]]
"""Lends a JVM by `key_of` what it serves, or nothing."""


@contextmanager
def spark_session(
    name: str,
    master: str = "local[*]",
    conf: Mapping[str, str] | None = None,
    stop_seconds: float = _STOP_SECONDS,
    lend: Lend = lambda key: nullcontext(),
) -> Iterator[SparkSession]:
    """Yield the active Spark session, or start one and end it, with its JVM, however the block is left.

    A session started here prints nothing, has no UI, keeps its files in a temporary directory and uses UTC. Ctrl-C
    raises KeyboardInterrupt at once, even during a Spark job. Concurrent blocks in threads of this process share one
    session, which the last of them ends. Raises TableError if there is no Java to run Spark on, or Spark does not
    start.

    Args:
        name: the application's name.
        master: Spark master URL. With a `local` one Spark only listens on the loopback interface.
        conf: further Spark configuration; overrides every default here.
        stop_seconds: how long the JVM may take to end before it is killed.
        lend: lends a JVM that stays when the session ends. Everything of the session itself ends with it.

    A session that is active already ignores all five.
    """
    key = (master, tuple(sorted((conf or {}).items())), os.environ.get(_PYTHON), users_path())
    with _SHARED.use(lambda: _ready(name, master, conf or {}, stop_seconds, lend), key, _lives) as session:
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
def _ready(name: str, master: str, conf: Mapping[str, str], stop_seconds: float, lend: Lend) -> Iterator[SparkSession]:
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
        stack.enter_context(logging_only(map(logging.getLogger, _PY4J_LOGGERS), is_news))
        stack.callback(remove_places)
        loan = None if has_jvm() else stack.enter_context(lend(key_of(master, conf)))
        home = scratch if loan is None else loan.directory
        defaults = _defaults(home, local=local) | {"spark.sql.warehouse.dir": (scratch / "warehouse").as_uri()}
        settings = {**defaults, **conf, "spark.app.name": name, "spark.master": master}
        variables, log = _variables() if local else {}, home / "jvm.log"
        gateway = stack.enter_context(jvm(settings, variables, log, stop_seconds, loan))
        session = stack.enter_context(_session(settings, gateway, log))
        if _PYTHON in variables:
            session.sparkContext.pythonExec = variables[_PYTHON]
        _log.info("Spark is ready with master %s after %.1f s", settings["spark.master"], time.monotonic() - began)
        yield session


def has_session() -> bool:
    """Whether this process has a session, which is used at once."""
    return "pyspark" in sys.modules and _active() is not None


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


def _variables() -> dict[str, str]:
    return {
        _PYTHON: os.environ.get(_PYTHON, sys.executable),
        # A machine whose own name does not resolve must not keep Spark from starting.
        "SPARK_LOCAL_IP": os.environ.get("SPARK_LOCAL_IP", "127.0.0.1"),
    }


@contextmanager
def _session(settings: Mapping[str, str], gateway: Any, log: Path) -> Iterator[SparkSession]:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    with without_pandas():  # pyspark's first call looks here for NumPy, and this imports pandas for pyspark's own tests
        import pyspark.testing.utils  # noqa: F401
    handler, search_path = signal.getsignal(signal.SIGINT), list(sys.path)
    try:
        try:
            with as_table_error(f"Spark did not start with master {settings['spark.master']!r}"):
                context = SparkContext(conf=SparkConf().setAll(list(settings.items())), gateway=gateway)
                session = SparkSession(context)
        except TableError as error:
            raise TableError(f"{error}; its log says: {complaint(log)}") from None
        finally:
            # Spark's own handler first asks the JVM to cancel, on the very connection that waits for the running job.
            if handler is not None and threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGINT, handler)
        yield session
    finally:
        with interrupts_held():
            is_clean = _stop()
            if is_clean and isinstance(getattr(gateway, "proc", None), Loan):
                give_back(gateway)
        sys.path[:] = [path for path in sys.path if path in search_path or not path.startswith(str(log.parent))]


def _stop() -> bool:
    """Stop Spark, even if half started or without its JVM. Whether it has stopped well and no task may still run."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context, is_clean = SparkContext._active_spark_context, False
    running = SparkSession._instantiatedSession or context
    with warnings.catch_warnings(), tidying_up():
        warnings.simplefilter("ignore", RuntimeWarning)
        if running is not None:
            was_idle = context is not None and is_idle(context)
            running.stop()
            is_clean = was_idle
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    return is_clean


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
    a temporary view of that name, which is left alone."""
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
    """Remove a directory. It stays noted if that fails, or unless `for_good`: tasks may still write there."""
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


os.register_at_fork(after_in_child=_PLACES.clear)  # of the parent: a forked process may end at any time


@atexit.register
def _at_exit() -> None:
    remove_places()
    for place in _PLACES:
        warnings.warn(f"{place.name}, where input was staged, could not be removed", RuntimeWarning, stacklevel=2)
