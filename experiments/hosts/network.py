"""Hosts in network namespaces of this machine, joined by a switch in one more. The machine's own network has no part in
it: no interface, address or route is added there.

Namespaces, links and rates are made by `ip` and `tc` of iproute2, which need root and Linux.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import which

from dpa._util.disk import why
from dpa._util.signals import interrupts_held
from dpa.errors import DpaError

_NAMESPACES = Path("/run/netns")
"""Where `ip netns` keeps the names of namespaces."""

_SUBNET = "10.77.0"

SWITCH = "switch"
"""The namespace with the bridge, and the bridge in it; no host can have the name."""

_MIN_BURST, _BURST_SECONDS, _QUEUE_SECONDS = 128 * 1024, 0.01, 0.05
"""What a limited interface sends at once, in bytes at least and in time at its rate, and queues before it drops."""

_END_SECONDS = 10.0
"""How long killed processes may take to end."""


class HostsError(DpaError):
    """Hosts cannot be made on this machine, or did not start."""


@dataclass(frozen=True)
class InterfaceBytes:
    """What the network interface of a host has carried, in bytes, with the headers of all layers."""

    sent: int = 0
    received: int = 0

    def __sub__(self, earlier: InterfaceBytes) -> InterfaceBytes:
        return InterfaceBytes(self.sent - earlier.sent, self.received - earlier.received)


class Network:
    """A switch and its hosts, in a `with` block. Each host has the interfaces `lo` and `eth0`, an address of its own,
    and no way out of the network. What still runs on a host when the block ends is killed.

    Args:
        name: what the names of its namespaces begin with; no other network on this machine has it.
        hosts: their names.
        mbit: the rate of each host's interface in each direction, in 10^6 bits per second; None sets no limit.
    """

    def __init__(self, name: str, hosts: Sequence[str], mbit: float | None = None) -> None:
        self._name, self._mbit = name, mbit
        self.addresses = {host: f"{_SUBNET}.{number}" for number, host in enumerate(hosts, 1)}

    def __enter__(self) -> Network:
        try:
            self._build()
        except BaseException:
            remove_namespaces(self._name)
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        remove_namespaces(self._name)

    def namespace(self, host: str) -> str:
        """The name of a host's network namespace."""
        return f"{self._name}-{host}"

    def traffic(self) -> dict[str, InterfaceBytes]:
        """What each host's interface has carried, as the kernel counts it on the switch's end of its cable: what a
        full queue dropped is not in it."""
        links = json.loads(_run("ip", "-n", self.namespace(SWITCH), "-s", "-j", "link", "show"))
        stats = {link["ifname"]: link["stats64"] for link in links}
        ports = [(host, stats[_port(number)]) for number, host in enumerate(self.addresses)]
        return {host: InterfaceBytes(port["rx"]["bytes"], port["tx"]["bytes"]) for host, port in ports}

    def end_processes(self, host: str) -> None:
        """Kill what runs on a host.

        Raises:
            HostsError: it does not end.
        """
        _end_processes(self.namespace(host))

    @contextmanager
    def entered(self, host: str) -> Iterator[None]:
        """Have this thread be on a host in this block, with the threads and processes that it starts."""
        own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        there = os.open(_NAMESPACES / self.namespace(host), os.O_RDONLY)
        try:
            _enter(there)
            try:
                yield
            finally:
                _enter(own)
        finally:
            os.close(there)
            os.close(own)

    def _build(self) -> None:
        switch = self.namespace(SWITCH)
        _run("ip", "netns", "add", switch)
        _run("ip", "-n", switch, "link", "add", SWITCH, "type", "bridge")
        _run("ip", "-n", switch, "link", "set", SWITCH, "up")
        for number, (host, address) in enumerate(self.addresses.items()):
            there, port = self.namespace(host), _port(number)
            _run("ip", "netns", "add", there)
            _run("ip", "-n", switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", there)
            _run("ip", "-n", switch, "link", "set", port, "master", SWITCH, "up")
            _run("ip", "-n", there, "link", "set", "lo", "up")
            _run("ip", "-n", there, "address", "add", f"{address}/24", "dev", "eth0")
            _run("ip", "-n", there, "link", "set", "eth0", "up")
            if self._mbit is not None:
                _limit(there, "eth0", self._mbit)
                _limit(switch, port, self._mbit)


def lacking() -> str | None:
    """What this machine lacks for hosts, as a sentence; None if nothing. Makes a small network and removes it."""
    if sys.platform != "linux":
        return "network namespaces need Linux"
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "tc"):
        if which(program) is None:
            return f"network namespaces need the program `{program}`, of iproute2"
    try:
        with interrupts_held(), Network(f"dpa-trial-{uuid.uuid4().hex[:8]}", ["host"], mbit=1):
            return None
    except HostsError as error:
        return f"no network namespaces: {error}"


def remove_namespaces(name: str) -> None:
    """Remove the namespaces of a network, or what there is of them, with what runs in them.

    Raises:
        HostsError: a process does not end, or a namespace cannot be removed.
    """
    with interrupts_held():
        mine = re.compile(re.escape(name) + "-[^/]+")
        known = [entry.name for entry in _NAMESPACES.iterdir()] if _NAMESPACES.exists() else []
        left = [namespace for namespace in known if mine.fullmatch(namespace)]
        for namespace in left:
            _end_processes(namespace)
        for namespace in left:
            _run("ip", "netns", "delete", namespace)


def _end_processes(namespace: str) -> None:
    """Kill the processes of a namespace, until none is left; one may be starting another."""
    until = time.monotonic() + _END_SECONDS
    while processes := _processes(namespace):
        if time.monotonic() > until:
            raise HostsError(f"processes of {namespace} do not end: {', '.join(map(str, processes))}")
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.02)


def _processes(namespace: str) -> list[int]:
    """The numbers of a namespace's processes, this one excepted."""
    try:
        found = _run("ip", "netns", "pids", namespace)
    except HostsError:  # `ip` was interrupted when it had made the name alone
        return []
    return [number for number in map(int, found.split()) if number != os.getpid()]


def _limit(namespace: str, interface: str, mbit: float) -> None:
    """Limit what an interface sends."""
    burst = max(_MIN_BURST, round(mbit * 1e6 / 8 * _BURST_SECONDS))
    rate = ["rate", f"{round(mbit * 1e6)}bit", "burst", f"{burst}b", "latency", f"{_QUEUE_SECONDS * 1000:.0f}ms"]
    _run("tc", "-n", namespace, "qdisc", "add", "dev", interface, "root", "tbf", *rate)


def _port(number: int) -> str:
    """The switch's interface for a host."""
    return f"port{number}"


def _enter(descriptor: int) -> None:
    """Move this thread to a network namespace; `os.setns` is of Python 3.12."""
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, 0x40000000):  # CLONE_NEWNET
        error = OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        raise HostsError(f"a network namespace cannot be entered: {why(error)}")


def _run(*command: str) -> str:
    """What a command prints. A terminal's Ctrl-C does not reach it.

    Raises:
        HostsError: it fails.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False, start_new_session=True)
    if done.returncode:
        raise HostsError(f"`{' '.join(command)}`: {(done.stderr or done.stdout).strip()}")
    return done.stdout
