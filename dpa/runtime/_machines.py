"""The other machines of a job on Ray: a silent machine is lost, and the job leaves one that Ray drains.

Tasks of a machine that drains move to others, as on request, and nothing is read again. If a task cannot move, a job
with checkpoints begins again without the machine, right after its next checkpoint.

The driver connects again and again to each machine's `raylet`, Ray's own process, which runs no user code. Ray itself
takes 15 to 65 s to notice that a machine is silent."""

from __future__ import annotations

import os
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache

import ray

from dpa.errors import JobFailedError
from dpa.protocol.plan import Request, RunPlan
from dpa.protocol.recovery import Death, TaskDiedError
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.events import MoveTasks, Rescale, moves_by_stage
from dpa.protocol.wire.instructions import Answer
from dpa.protocol.wire.nodes import BackendNode, Placed
from dpa.runtime.actors.answers import Polled
from dpa.runtime.cluster import alive_nodes, is_of_this_process
from dpa.runtime.ray_internals.private import draining_nodes

ENDED = "Ray has ended there"

SILENT_SECONDS = 8.0  # a machine that has not answered for this long is lost

_CHECK_SECONDS, _MOMENT = 0.25, 0.005
"""How long machines may take to answer after a task has died, and how long to wait between two looks at them."""

_MOST_COUNTED = 1.0  # most seconds of silence that one look adds: a driver that was stopped has not listened meanwhile

_LOOK_SECONDS = 0.5

_ASK_SECONDS = 15.0  # how often to ask for moves of tasks that are still on a machine that drains


@dataclass(frozen=True)
class Running:
    """The generation that runs: `ask` asks its coordinator for moves, and `warn` reaches the user."""

    plan: RunPlan
    placed: Placed | None
    ask: Callable[[MoveTasks], object]
    warn: Callable[[str], None]


@dataclass
class _Drain:
    """A machine that drains, with the number of checkpoints when that was noticed. `ask_at`: when to ask for moves
    again, on the monotonic clock; None: never, as a task cannot move."""

    name: str
    checkpoints: int
    ask_at: float | None = 0.0


class Machines:
    """The machines that host tasks of a job in any generation, except the driver's.

    Attributes:
        lost: the `id`s of nodes that are.
    """

    def __init__(self) -> None:
        self._here: str = ray.get_runtime_context().get_node_id()
        self._addresses: dict[str, tuple[str, int]] = {}
        self._raylet = None if is_of_this_process() else self._raylet_of(self._here)
        self._heartbeats = Heartbeats(self._raylet_of)
        self._tasks: dict[str, list[Address]] = {}  # by node
        self.lost: set[str] = set()
        self._drains: dict[str, _Drain] = {}
        self._look_at = 0.0

    def usable(self) -> list[BackendNode]:
        """Nodes that live and do not drain, and the driver's own."""
        return alive_nodes(without=self.avoided())

    def avoided(self) -> frozenset[str]:
        """The `id`s of nodes on which no task is to begin."""
        return frozenset(self.lost | self._drains.keys() | draining_nodes().keys()) - {self._here}

    def look(self, polled: Polled, running: Running) -> None:
        """Check that all live, and leave those that drain. Called several times a second. TaskDiedError if one is lost,
        or left at once; JobFailedError if Ray has ended on this machine."""
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + _LOOK_SECONDS
        here = self._raylet
        if here is not None and not here.has_answered() and here.has_ended and here.has_been_reached:
            # Ray ends this process too when it notices.
            raise JobFailedError("Ray's raylet on the machine of the driver has ended; without it no job can go on")
        left = self.lost | {self._here}
        if polled.processes:
            self._tasks = {}
            for address, process in polled.processes.items():
                self._tasks.setdefault(process.node, []).append(address)
        else:  # the generation is starting, on no machine that drains
            left |= self._drains.keys()
            self._tasks = self._wanted(running)
        others = [node for node in self._tasks if node not in left]
        if lost := self._heartbeats.lost(others):
            self.lost |= lost.keys()
            node, why = next(iter(lost.items()))
            whose = "its machine" if polled.processes or running.placed else "a machine where it may be starting"
            raise TaskDiedError(Death(self._tasks[node][0], f"{whose} is lost: {why}", _name(node)))
        if others and polled.processes:
            for node, deadline in draining_nodes().items():
                if node in others:
                    self._leave(node, deadline, polled, running)

    def check(self) -> list[str]:
        """Note on which machines Ray has ended, before a generation begins: none of its tasks begins there, and no
        process there is kept. Returns their names."""
        # Ray itself may take a machine for alive for a while, and a task's death is often known before its machine's.
        others = {node.id: node.name for node in self.usable() if node.id != self._here}
        ended = self._heartbeats.ended(others)
        self.lost |= ended
        return sorted(others[node] for node in ended)

    def end(self) -> None:
        self._heartbeats.lost(())

    def _raylet_of(self, node: str) -> Raylet:
        if node not in self._addresses:
            self._addresses = {
                each["NodeID"]: (each["NodeManagerAddress"], each["NodeManagerPort"]) for each in ray.nodes()
            }
        return Raylet(self._addresses[node])

    def _wanted(self, running: Running) -> dict[str, list[Address]]:
        """Where tasks are to start, by node."""
        if running.placed is None:  # Ray may start the first on any of them
            first = Address(running.plan.graph.stages[0].name, 0)
            return {node.id: [first] for node in self.usable()}
        found: dict[str, list[Address]] = {}
        for stage, nodes in running.placed.nodes.items():
            for index, node in enumerate(nodes):
                found.setdefault(node, []).append(Address(stage, index))
        return found

    def _leave(self, node: str, deadline: float, polled: Polled, running: Running) -> None:
        """Move the tasks away from a machine that drains. TaskDiedError if one cannot move, once there is a new
        checkpoint."""
        saved = polled.snapshot and polled.snapshot.checkpoints
        written = saved.written if saved else 0
        drain = self._drains.get(node)
        if drain is None:
            drain = self._drains[node] = _Drain(_name(node), written)
            graph, stages = running.plan.graph, {address.stage for address in self._tasks[node]}
            fixed = [(stage, graph[stage].why_fixed) for stage in sorted(stages) if graph[stage].why_fixed]
            then = "its tasks move to other machines"
            for stage, why in fixed[:1]:
                drain.ask_at = None
                when = "after its next checkpoint" if saved else "when the machine is gone"
                then = f"the job begins again {when}, as the tasks of {stage} cannot move: {why}"
            by = f" by {time.strftime('%H:%M:%S', time.localtime(deadline))}" if deadline else ""
            running.warn(f"the machine {drain.name} is being drained by Ray{by}; {then}")
        if drain.ask_at is None and written > drain.checkpoints:
            task, cause = self._tasks[node][0], "Ray drains its machine"
            raise TaskDiedError(Death(task, cause, drain.name, what="has to leave", is_planned=True))
        if drain.ask_at is not None and time.monotonic() >= drain.ask_at:
            drain.ask_at = time.monotonic() + _ASK_SECONDS
            for request in self._moves(node, f"{drain.name} drains", running.placed):
                running.ask(request)

    def _moves(self, node: str, reason: str, placed: Placed | None) -> list[MoveTasks]:
        """Moves of all tasks of a machine to the machines with the fewest tasks per processor."""
        targets = self._targets(placed)
        tasks = Counter({target: len(self._tasks.get(target.id, ())) for target in targets})
        moves = []
        for address in sorted(self._tasks[node]):
            to = min(targets, key=lambda target: (tasks[target] + 1) / max(target.processors, 0.01))
            tasks[to] += 1
            moves.append((address, to.id))
        return moves_by_stage(moves, reason)

    def _targets(self, placed: Placed | None) -> Sequence[BackendNode]:
        """Machines to which tasks may move: those of the placement, if any of them is usable."""
        usable = self.usable()
        if placed is None:
            return usable
        ids = {node for nodes in placed.nodes.values() for node in nodes}
        return [node for node in usable if node.id in ids] or usable


def with_node_ids(request: Request) -> Request | Answer:
    """A request with the `id`s of nodes in place of their names; or the refusal, if there is no such node."""
    if not isinstance(request, Rescale | MoveTasks) or not request.nodes:
        return request
    ids = {node.name: node.id for node in alive_nodes()}
    unknown = [node for node in request.nodes if node not in ids]
    if unknown:
        text = f"there is no node {unknown[0]!r}; the nodes are {', '.join(sorted(ids))}"
        return Answer(request.request, text, refused=True)
    return replace(request, nodes=tuple(ids[node] for node in request.nodes))


def _name(node: str) -> str:
    return next((there.name for there in alive_nodes() if there.id == node), node)  # Ray may have forgotten it


class Heartbeats:
    """The heartbeats of a job's machines, except the driver's. Their clocks do not matter."""

    def __init__(
        self,
        of: Callable[[str], Raylet],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`of` gives the raylet of the node with an `id`."""
        self._new, self._clock, self._sleep = of, clock, sleep
        self._looked_at = clock()
        self._of: dict[str, Raylet] = {}

    def lost(self, nodes: Collection[str]) -> dict[str, str]:
        """Why, for each of these nodes that is lost; others are not asked any more. Called often."""
        now = self._clock()
        passed, self._looked_at = min(now - self._looked_at, _MOST_COUNTED), now
        for node in [node for node in self._of if node not in nodes]:
            self._of.pop(node).end()
        for node in nodes:
            if node not in self._of:
                self._of[node] = self._new(node)
            self._of[node].look(passed)
        return {node: why for node, raylet in self._of.items() if (why := raylet.why_lost) is not None}

    def ended(self, nodes: Collection[str]) -> set[str]:
        """Those of these nodes on which Ray has ended; waits a moment for their answers."""
        for node in nodes:
            if node in self._of:
                self._of[node].ask()
            else:
                self._of[node] = self._new(node)
        until, waiting = self._clock() + _CHECK_SECONDS, [self._of[node] for node in nodes]
        while waiting and self._clock() < until:
            self._sleep(_MOMENT)
            waiting = [raylet for raylet in waiting if not raylet.look(0.0)]
        return {node for node in nodes if self._of[node].has_ended}


class Raylet:
    """Ray's own process on a node, by its host and port.

    Attributes:
        has_ended: whether its machine refuses connections to its port.
        has_been_reached: whether it has answered once.
    """

    # A connection alone is no answer: the kernel accepts it also for a process that is stopped. A server of HTTP/2
    # speaks first; where Ray uses TLS, after a greeting; or it ends the connection.

    def __init__(self, address: tuple[str, int]) -> None:
        self.has_ended = self.has_been_reached = False
        self._silent = 0.0
        self._address = address
        self._start()

    def _start(self) -> None:
        self._greeting = _greeting()
        self._asked = socket.socket(socket.AF_INET6 if ":" in self._address[0] else socket.AF_INET)
        self._asked.setblocking(False)
        with suppress(OSError):  # it is under way, or what is wrong is said where the answer is read
            self._asked.connect(self._address)

    def ask(self) -> None:
        self.end()
        self._start()

    def has_answered(self) -> bool:
        """Whether it has answered since it was last asked. If so, it is asked again."""
        try:
            self._asked.recv(1)
        except BlockingIOError:
            if self._greeting:
                with suppress(OSError):  # not connected yet
                    self._greeting = self._greeting[self._asked.send(self._greeting) :]
            return False
        except OSError as error:
            answers, self.has_ended = False, isinstance(error, ConnectionRefusedError)
        else:
            answers, self.has_ended, self.has_been_reached = True, False, True
        self.ask()
        return answers

    def look(self, passed: float) -> bool:
        """Listen, `passed` seconds after the last time; whether the machine's condition is known."""
        answers = self.has_answered()
        self._silent = 0.0 if answers else self._silent + passed
        return answers or self.has_ended

    @property
    def why_lost(self) -> str | None:
        """None: the machine is not lost."""
        if self.has_ended:
            return ENDED
        return f"it has not answered for {SILENT_SECONDS:g} s" if self._silent >= SILENT_SECONDS else None

    def end(self) -> None:
        self._asked.close()


@cache
def _greeting() -> bytes:
    """What a client says first; empty without TLS."""
    if os.environ.get("RAY_USE_TLS", "").lower() not in ("1", "true"):
        return b""
    context, said = ssl.create_default_context(), ssl.MemoryBIO()
    context.set_alpn_protocols(["h2"])
    with suppress(ssl.SSLWantReadError):  # who is there is Ray's to check; nothing but this is said to it
        context.wrap_bio(ssl.MemoryBIO(), said, server_hostname="raylet").do_handshake()
    return said.read()
