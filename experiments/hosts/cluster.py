"""Several Ray nodes on one machine, each on a host of its own, with a network between them whose rate is known."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import gettempdir

from dpa._util.owned import OwnedDirectory, found
from dpa._util.signals import interrupts_held
from dpa.runtime.cluster import keep_others_out
from experiments.hosts.network import SWITCH, HostsError, InterfaceBytes, Network, lacking, remove_namespaces

_PREFIX, _DIGITS = "dpa-hosts-", 8
"""Of the cluster's directory, whose path must be short, as Ray has sockets in it; and of its namespaces."""

_PORT = 6379

_RAY = """
from dpa.runtime.ray_internals.private import few_processes
from ray.scripts.scripts import main
with few_processes(logs=False):
    main()
"""
"""Ray's own command, which starts no more processes than a job needs."""

_FEW = ("--no-monitor", "--include-log-monitor=false")

_START_SECONDS = 120
"""How long `ray start` may take on a host."""


class NamespaceCluster:
    """A Ray of several nodes, each in a network namespace of this machine, in a `with` block: hosts with an address, a
    network interface and a directory of Ray's each, but with the same files, processors and users. Nothing but their
    own processes reaches them, so a driver must run on one of them too: as a `command`, or in the block of `entered`.

    Needs Linux, root, and `ip` and `tc` of iproute2. When its block ends, so does whatever runs on the hosts, and
    nothing is left. What a killed process has left, the next cluster removes.

    Args:
        nodes: the processors of each node, by its name; the first one is the head.
        mbit: the rate of each host's interface in each direction, in 10^6 bits per second; None sets no limit.
        object_store_mb: size of each node's object store, in MiB.

    Raises:
        ValueError: no node is named, or a name has other characters than letters, digits, `_` and `-`, or is `switch`.
        HostsError: on entering the block: this machine lacks something, which the message names, or Ray did not start.
    """

    def __init__(self, nodes: Mapping[str, int], *, mbit: float | None = None, object_store_mb: int = 128) -> None:
        if not nodes:
            raise ValueError("a cluster needs at least one node")
        for name in nodes:
            if name == SWITCH or not re.fullmatch("[A-Za-z0-9_-]{1,63}", name):
                raise ValueError(f"{name!r} is no name for a host; it may have letters, digits, `_` and `-`")
        self._nodes, self._mbit, self._object_store = dict(nodes), mbit, object_store_mb * 2**20
        self._head = next(iter(self._nodes))
        self._running = ExitStack()
        self._network: Network | None = None
        self._directory = Path()

    @staticmethod
    def lacking() -> str | None:
        """What this machine lacks for such hosts, as a sentence; None if nothing. Takes a tenth of a second."""
        return lacking()

    @property
    def address(self) -> str:
        """Where jobs on the hosts reach it, in the block: `host:port`.

        Raises:
            RuntimeError: the block has not begun.
        """
        return f"{self._hosts().addresses[self._head]}:{_PORT}"

    @property
    def directory(self) -> Path:
        """Of files that no other user can read, in the block."""
        self._hosts()
        return self._directory

    def command(self, *arguments: str, host: str | None = None) -> list[str]:
        """A command that runs another one on a host, by default the head. There it has a mount namespace of its own."""
        return ["ip", "netns", "exec", self._hosts().namespace(host or self._head), *arguments]

    @contextmanager
    def entered(self, host: str | None = None) -> Iterator[None]:
        """Have this thread, with the threads and processes that it starts, be on a host in this block, by default the
        head: a job of this process can run there, and reaches nothing else. Ray or Spark must not run in it before."""
        with self._hosts().entered(host or self._head):
            yield

    def traffic(self) -> dict[str, InterfaceBytes]:
        """What the interface of each host has carried so far, by the node's name."""
        return self._hosts().traffic()

    def remove(self, name: str) -> None:
        """End a node with all that runs on its host, as if the machine had died; it must not be the head.

        Raises:
            KeyError: there is no such node.
            ValueError: it is the head, which all others need.
        """
        if name == self._head:
            raise ValueError(f"{name} is the head; the cluster ends with its block")
        if name not in self._nodes:
            raise KeyError(name)
        self._hosts().end_processes(name)

    def __enter__(self) -> NamespaceCluster:
        if problem := lacking():
            raise HostsError(problem)
        keep_others_out()
        with ExitStack() as stack:
            with interrupts_held():
                _remove_abandoned()
                owned = OwnedDirectory.make(Path(gettempdir()), _PREFIX, mode=0o700, digits=_DIGITS)
                stack.callback(_remove, owned)
                self._network = stack.enter_context(Network(owned.path.name, list(self._nodes), self._mbit))
                self._directory = owned.path
                stack.callback(setattr, self, "_network", None)
                starts: dict[str, subprocess.Popen[bytes]] = {}
                stack.callback(_kill, starts)
            self._start(starts)
            self._running = stack.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        with interrupts_held():
            self._running.close()

    def _hosts(self) -> Network:
        if self._network is None:
            raise RuntimeError("the cluster runs in a `with` block alone")
        return self._network

    def _start(self, starts: dict[str, subprocess.Popen[bytes]]) -> None:
        """Start the head, and then all others at once; `starts` receives each `ray start`."""
        for names, options in (
            ([self._head], ["--head", f"--port={_PORT}", "--include-dashboard=false"]),
            ([name for name in self._nodes if name != self._head], [f"--address={self.address}"]),
        ):
            for name in names:
                with interrupts_held():
                    starts[name] = self._start_node(name, options)
            for name in names:
                self._wait_for(name, starts[name])

    def _start_node(self, name: str, options: list[str]) -> subprocess.Popen[bytes]:
        """Start `ray start` on a host."""
        directory = self._directory_of(name)
        directory.mkdir()
        command = self.command(sys.executable, "-c", _RAY, "start", *options, *_FEW, host=name)
        command += [
            f"--node-ip-address={self._hosts().addresses[name]}",
            f"--node-name={name}",
            f"--num-cpus={self._nodes[name]}",
            f"--object-store-memory={self._object_store}",
            f"--temp-dir={directory}",
        ]
        environment = {"RAY_USAGE_STATS_ENABLED": "0"} | os.environ
        environment.pop("RAY_ADDRESS", None)
        with (directory / "start.log").open("wb") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=directory,
                env=environment,
                start_new_session=True,
            )

    def _wait_for(self, name: str, process: subprocess.Popen[bytes]) -> None:
        """Wait until `ray start` has ended.

        Raises:
            HostsError: it failed, or took too long.
        """
        try:
            status = process.wait(_START_SECONDS)
        except subprocess.TimeoutExpired:
            raise HostsError(f"Ray did not start on host {name} in {_START_SECONDS} s: {self._last(name)}") from None
        if status:
            raise HostsError(f"Ray did not start on host {name}: {self._last(name)}")

    def _directory_of(self, name: str) -> Path:
        return self._directory / str(list(self._nodes).index(name))

    def _last(self, name: str) -> str:
        """What `ray start` said last."""
        text = (self._directory_of(name) / "start.log").read_text(encoding="utf-8", errors="replace")
        return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "it said nothing")


def _kill(starts: Mapping[str, subprocess.Popen[bytes]]) -> None:
    """Kill those of the processes that have not ended; one of them may not have entered its namespace yet."""
    for process in starts.values():
        process.kill()
        process.wait()


def _remove(directory: OwnedDirectory) -> None:
    directory.remove_directory()
    directory.release()


def _remove_abandoned() -> None:
    """Remove the clusters of processes that are gone."""
    for directory in found(Path(gettempdir()), _PREFIX, _DIGITS)[0]:
        remove_namespaces(directory.path.name)
        _remove(directory)
