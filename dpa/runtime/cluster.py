"""The Ray that a job runs on: started for the job, already running, or the caller's own."""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import shutil
import socket
import sys
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any

from dpa._util.disk import why
from dpa._util.owned import directory_for_sockets
from dpa._util.sharing import OWN_ENVIRONMENT, Shared, in_lasting_thread
from dpa._util.signals import interrupts_held, terminal_kept_away
from dpa._util.streams import chosen_level, say
from dpa.errors import ConfigError, JobFailedError
from dpa.protocol.wire.nodes import BackendNode
from dpa.runtime._surroundings import Surroundings, own_paths
from dpa.runtime.ray_internals.private import few_processes, node_processes, ray_messages_logged, session_directory
from dpa.runtime.standing import Standing, let_in, usable

if TYPE_CHECKING:
    from dpa.runtime._processes import Spares

_log = logging.getLogger(__name__)

_SENT_WHOLE = 2 * 2**20
"""Bytes up to which a message is part of the call that brings it. Ray's own 100 kB send most blocks through the object
store, which takes a sixth to a fifth of a job's processor time if blocks are small."""

_MAX_PRESTARTED = 2
"""Worker processes that an embedded Ray starts before an actor needs one; with few cores, more only queue."""

_USERS_TOKEN = Path("~/.ray/auth_token")

_CONNECT_SECONDS = 5.0  # how long a cluster may take to accept a connection
_END_SECONDS = 2.0  # how long an embedded Ray's processes may take to end before they are killed
_LOOK_SECONDS = 2.0  # how often to check that a Ray lives which is kept for the next job
_NEEDED = ("gcs_server", "raylet")  # the processes of an embedded Ray that a job needs


class Connection:
    """This process's connection to a Ray.

    Attributes:
        place: where that is; None: the process had it before.
    """

    def __init__(self, place: str | None, begun: Surroundings | None = None, *, may_pool: bool = False) -> None:
        """`begun`: what a Ray that was started here, or by `dpa up`, has been given. `may_pool`: whether tasks may be
        processes of a cluster's pool."""
        import ray

        self.place, self._begun = place, begun
        self._may_pool = may_pool and not ray.get_runtime_context().runtime_env.to_dict()
        self._is_pooled = False
        self._lock = threading.Lock()
        self._spares: Spares | None = None
        self._number = ray.get_runtime_context().get_worker_id()

    @property
    def lives(self) -> bool:
        import ray

        if not ray.is_initialized() or ray.get_runtime_context().get_worker_id() != self._number:
            return False  # the caller has shut it down
        is_up = all(process.poll() is None for name, process in node_processes() if name in _NEEDED)
        return is_up and all(standing.is_offered for standing in _STANDING)

    def changes(self) -> Surroundings | None:
        """What is no more as it was given to such a Ray, or to the processes of a pool."""
        if self._is_pooled:
            return Surroundings({}, "", own_paths())
        if self._begun is None:
            return None
        with OWN_ENVIRONMENT:
            return Surroundings.here().since(self._begun)

    def spares(self) -> Spares:
        """Those of a session, or of one job."""
        with self._lock:
            made = self._spares or self._made_spares()
            if is_kept():
                self._spares = made
            return made

    def _made_spares(self) -> Spares:
        from dpa.runtime._processes import Spares
        from dpa.runtime.pool import Pool, PooledSpares

        pool = Pool.find() if self._may_pool else None
        if pool is not None and (why := pool.unfit()) is not None:
            say(f"the session that `dpa up` started is not used: {why}")
            pool = None
        if pool is None:
            return Spares(is_kept)
        say("using the session that `dpa up` started")
        self._is_pooled = True
        return PooledSpares(is_kept)

    def close(self) -> None:
        """End the processes that were started for later jobs."""
        if self._spares is not None:
            self._spares.close()


_SHARED: Shared[Connection] = Shared()
_STANDING: list[Standing] = []  # the Ray of a keeper, while this process uses it


@contextmanager
def ray_kept() -> Iterator[None]:
    """A block in which a Ray that a job has started, or connected to, stays for the next one."""
    is_over = threading.Event()
    threading.Thread(target=_leave_dead, args=(is_over,), name="dpa-session", daemon=True).start()
    try:
        with _SHARED.kept():
            yield
    finally:
        is_over.set()
    if (still_used := _SHARED.opened) is not None and not is_kept():
        still_used.close()


def _leave_dead(is_over: threading.Event) -> None:
    # Ray ends the whole process a minute after its GCS has died, even if no job runs.
    while not is_over.wait(_LOOK_SECONDS):
        _SHARED.leave_unless(lambda connection: connection.lives)


def _leave_kept() -> None:
    _SHARED.leave_unless(lambda connection: False)


def is_kept() -> bool:
    """Whether some thread is in such a block."""
    return _SHARED.is_kept


@contextmanager
def ray_session(
    address: str | None, *, actors: int = 2, runtime_env: dict[str, Any] | None = None, object_store_mb: int = 1024
) -> Iterator[Connection]:
    """A block in which Ray is ready. A Ray that was running before stays up.

    Without an address, this process uses the Ray that `dpa up` keeps, or starts one for its jobs alone; a token keeps
    others out. Jobs that run at the same time, in threads of this process, share what the first of them has started. A
    session keeps it for later jobs that would start the same.

    Args:
        address: of a running cluster; None starts a Ray, unless the process has one or `dpa up` keeps one.
        actors: how many will run; a Ray that is started prepares worker processes for them.
        runtime_env: Ray's runtime environment, used with an address only.
        object_store_mb: size of the object store of a Ray that is started, in MiB.

    Raises ConfigError if there is no cluster at `address`, or a job that is running uses another one.
    """
    # Ray uploads what `runtime_env` names when this process connects, and not again when that has changed.
    key = object_store_mb if address is None else (address, object() if runtime_env else None)
    ready = _SHARED.use(
        lambda: in_lasting_thread(_ready(address, actors, runtime_env, object_store_mb)),
        key,
        lambda connection: connection.lives,
    )
    with ready as shared:
        if address is not None and shared.place not in (None, address):
            why = f"a job of this process is running on {shared.place}, and a process uses one Ray at a time"
            raise ConfigError(f"ray.address: {why}; run the job on {address} in a process of its own")
        yield shared


def alive_nodes(without: Collection[str] = ()) -> list[BackendNode]:
    """The nodes of the Ray that this process is connected to, by name, without those of the `id`s `without`. Nodes with
    the same name have their addresses added."""
    import ray

    alive = [node for node in ray.nodes() if node["Alive"] and node["NodeID"] not in without]
    names = [node["NodeName"] for node in alive]
    started_here = {node["NodeID"] for node in alive} if is_private() else set()
    found = []
    for node in alive:
        name = node["NodeName"]
        if names.count(name) > 1:
            name += f"@{node['NodeManagerAddress']}:{node['NodeManagerPort']}"
        # An embedded Ray knows of no more processors than it starts workers for.
        cores = os.cpu_count() if node["NodeID"] in started_here else node["Resources"].get("CPU", 0.0)
        found.append(BackendNode(node["NodeID"], name, float(cores or 0.0)))
    return sorted(found, key=lambda node: node.name)


def is_of_this_process() -> bool:
    """Whether this process has started the Ray that it is connected to."""
    return bool(node_processes())


def is_private() -> bool:
    """Whether the Ray that this process is connected to is for this user's jobs on this machine alone."""
    return bool(_STANDING) or is_of_this_process()


def require_alive() -> None:
    """JobFailedError if a process of an embedded Ray has ended that jobs need, or the keeper of Ray has."""
    for standing in _STANDING:
        standing.require_alive()
    # Ray itself would try to reach a dead one for a minute, and then end this whole process.
    for name, process in node_processes():
        status = process.poll()
        if name in _NEEDED and status is not None:
            how = f"killed by signal {-status}" if status < 0 else f"with status {status}"
            raise JobFailedError(f"Ray's {name} has ended, {how}; without it no job can go on")


@contextmanager
def _ready(
    address: str | None, actors: int, runtime_env: dict[str, Any] | None, object_store_mb: int
) -> Iterator[Connection]:
    """Start or find Ray, and end it or leave it."""
    if address is None:
        set_token(object_store_mb)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray

    if ray.is_initialized():
        _log.debug("using the Ray that this process is connected to")
        with closing(Connection(None)) as found:
            yield found
        return
    options: dict[str, Any]
    with ExitStack() as stack:
        standing = stack.enter_context(usable(object_store_mb)) if address is None else None
        if standing is not None:
            options, where = {"address": standing.address}, "the Ray of `dpa up`"
            _STANDING.append(standing)
            stack.callback(_STANDING.clear)
        elif address is not None:
            _require_listener(address)
            options, where = {"address": address, "runtime_env": runtime_env or None}, f"the Ray at {address}"
        else:
            options, where = _of_its_own(actors, object_store_mb), "a Ray of this process"
        begun = stack.enter_context(_connected(options, where))
        if standing is not None:
            made = Connection(where, standing.given())
        else:
            begun_here = begun if address is None else None
            # Ray's client is on another machine; logs come from what a job has started.
            may_pool = address is not None and not (runtime_env or address.startswith("ray://") or chosen_level())
            made = Connection(address or "a Ray that was started for it", begun_here, may_pool=may_pool)
        yield stack.enter_context(closing(made))


def _of_its_own(actors: int, object_store_mb: int) -> dict[str, Any]:
    return {
        "address": "local",  # whatever RAY_ADDRESS says
        "num_cpus": min(actors, _MAX_PRESTARTED),  # Ray starts as many workers, while it starts itself
        "include_dashboard": False,
        "object_store_memory": object_store_mb * 2**20,
        "_system_config": {"max_direct_call_object_size": _SENT_WHOLE},
        "_temp_dir": rays_directory(),
    }


@contextmanager
def _connected(options: dict[str, Any], where: str) -> Iterator[Surroundings]:
    """A block in which Ray is started or connected to, with these options of `ray.init`. Yields what a Ray that was
    started here has been given."""
    logs, is_own, began = chosen_level() is not None, options["address"] == "local", time.monotonic()
    try:
        lean = few_processes(logs=logs) if is_own else nullcontext()
        with ray_messages_logged():
            with interrupts_held(), terminal_kept_away(), OWN_ENVIRONMENT, lean:
                _start({**options, "logging_level": logging.ERROR, "log_to_driver": logs})
                begun = Surroundings.here()
            # Ray ends a process one of whose threads lets go of an actor while Ray's own end is under way, which the
            # import of Ray has registered. What is registered later is called before.
            atexit.unregister(_leave_kept)
            atexit.register(_leave_kept)
            _log.info("%s is ready after %.1f s", where, time.monotonic() - began)
            yield begun
    finally:
        with interrupts_held():
            _end()
        _log.info("%s %s", where, "has ended" if is_own else "was left")


def set_token(object_store_mb: int) -> None:
    """Set the token of the Ray that `ray_session` is to start or find, which Ray reads when it is imported."""
    if "ray" not in sys.modules and not let_in(object_store_mb):
        keep_others_out()


def keep_others_out() -> None:
    """Have Ray, which is not imported yet, require a token."""
    os.environ.setdefault("RAY_AUTH_MODE", "token")  # explicit, as Ray's default changes
    # Without a token in the environment, Ray would write one to the user's home, and so would another job that starts
    # at the same time.
    if "RAY_AUTH_TOKEN_PATH" not in os.environ and not _USERS_TOKEN.expanduser().exists():
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))


def rays_directory() -> str:
    """Where an embedded Ray has its logs and sockets. Ray lets everybody read and write there, so the place is one that
    only the user can enter. JobFailedError if there is none."""
    try:
        return str(directory_for_sockets(os.environ.get("RAY_TMPDIR") or gettempdir()) / "ray")
    except OSError as error:
        raise JobFailedError(f"Ray did not start: {error}") from None


def _start(options: dict[str, Any]) -> None:
    import ray

    try:
        ray.init(**options)
    except ConnectionError as error:
        raise ConfigError(f"ray.address: no Ray cluster at {options['address']!r}: {error}") from None
    except OSError as error:
        raise JobFailedError(f"Ray did not start: {why(error)}") from None
    except Exception as error:  # a plain one, where the machine is too busy
        raise JobFailedError(f"Ray did not start: {error}") from error


def _end() -> None:
    """Shut Ray down, and kill those of its processes here that stay, such as agents whose raylet has died. Its logs
    stay if the user wants logs."""
    import ray

    started = [each for _, process in node_processes() for each in _descendants(process.pid)]
    place = session_directory() if started and chosen_level() is None else None
    ray.shutdown(_exiting_interpreter=chosen_level() is not None)  # as at exit, it waits for the tasks' last log lines
    if started:
        import psutil  # Ray brings it

        for process in psutil.wait_procs(started, timeout=_END_SECONDS)[1]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
    if place is not None:
        shutil.rmtree(place, ignore_errors=True)


def _descendants(pid: int) -> list[Any]:
    import psutil

    with suppress(psutil.NoSuchProcess):
        return list(psutil.Process(pid).children(recursive=True))
    return []


def _require_listener(address: str) -> None:
    """ConfigError if `host:port` accepts no connection. Ray itself would try for half a minute."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        raise ConfigError(f"ray.address: no Ray cluster at {address!r}: {error}") from None
