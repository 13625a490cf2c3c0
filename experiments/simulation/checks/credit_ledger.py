"""The credit of every sender as messages show it: an account for each edge and each task that receives.

The accounts of the senders' emitters are held against these, which see nothing but messages, in the order in which each
machine takes them in.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from typing import TypeAlias

from dpa.protocol.graph import Graph
from dpa.protocol.task.emitter import Emitter
from dpa.protocol.task.machine import TaskMachine
from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.envelopes import Envelope
from dpa.protocol.wire.messages.data import Ack, CreditTransfer, Push
from experiments.simulation.checks.require import broken

_Account: TypeAlias = "tuple[Address, int]"
"""A sender, and the number of the edge."""


class CreditLedger:
    """Credit in use."""

    def __init__(self, graph: Graph, tasks: Mapping[Address, TaskMachine]) -> None:
        self._graph = graph
        self._tasks = tasks
        self._stages = {number: graph[edge.target] for number, edge in enumerate(graph.edges)}
        self._used: dict[_Account, defaultdict[int, int]] = {}
        self._windows: dict[_Account, defaultdict[int, int]] = {}
        self._allowed: dict[tuple[_Account, int], int] = {}
        self._on_the_way: dict[tuple[Address, Address, int], Ack | CreditTransfer] = {}
        self._of_sender: dict[Address, list[Emitter]] = {}
        self._gone: set[Address] = set()
        for task in tasks:
            self.joined(task)

    def joined(self, task: Address) -> None:
        """Another task may send."""
        self._of_sender[task] = list(self._tasks[task].emitters)
        for emitter in self._of_sender[task]:
            account, first = (task, emitter.edge), self._graph.credit(emitter.stage).first_window
            self._used[account] = defaultdict(int)
            self._windows[account] = defaultdict(partial(int, first))

    def stopped(self, task: Address) -> None:
        """A task is gone: credit that comes back to it is of no use."""
        self._gone.add(task)

    def sent(self, envelope: Envelope) -> None:
        """A message leaves its sender.

        Raises:
            ProtocolError: it has records that no credit is left for.
        """
        message = envelope.message
        if isinstance(message, Ack | CreditTransfer):
            self._on_the_way[envelope.sender, envelope.receiver, envelope.seq] = message
        elif isinstance(message, Push) and not message.hops:
            self._pushed(envelope, message)

    def taken_in(self, sender: Address, receiver: Address, seq: int) -> None:
        """A machine has taken in the next message of a channel."""
        message = self._on_the_way.pop((sender, receiver, seq), None)
        if message is None:
            return
        used = self._used[receiver, message.edge]
        account = (receiver, message.edge)
        used[sender.index] -= message.records
        if isinstance(message, CreditTransfer):
            self._note_allowed(account, message.receiver, message.records)
            used[message.receiver] += message.records
        elif message.window is not None:
            self._note_allowed(account, sender.index)
            self._windows[account][sender.index] = message.window
            self._note_allowed(account, sender.index)

    def check(self, task: Address) -> None:
        """What must hold when a task has handled an event.

        Raises:
            ProtocolError: an account is not what messages show.
        """
        self._allowed.clear()
        for emitter in self._of_sender.get(task, ()):
            known = emitter.in_flight_to
            used = {receiver: records for receiver, records in self._used[task, emitter.edge].items() if records}
            if known != used or emitter.in_flight != sum(used.values()):
                broken(f"{task} counts {known} records in flight towards {emitter.stage}, not {used}")

    def check_quiet(self) -> None:
        """What must hold when nothing is in transit.

        Raises:
            ProtocolError: credit is in use.
        """
        for (sender, edge), used in self._used.items():
            if any(used.values()) and sender not in self._gone:
                stage = self._stages[edge].name
                broken(f"{sender} still has {dict(used)} credits in use towards {stage}")

    def _pushed(self, envelope: Envelope, push: Push) -> None:
        account, to = (push.origin, push.edge), envelope.receiver.index
        used, window = self._used[account], self._windows[account][to]
        used[to] += push.block.rows
        if used[to] > max(window, self._allowed.get((account, to), 0)):
            what = f"{push.origin} has {used[to]} records in flight towards {envelope.receiver}"
            broken(f"{what}, whose window is {window}")

    def _note_allowed(self, account: _Account, to: int, transferred: int = 0) -> None:
        """A late message lets its receiver take in those after it too, in one event: what was pushed between two of
        them went by the window of that moment, and knew of no credit that was transferred later."""
        before = self._allowed.get((account, to), 0)
        self._allowed[account, to] = max(before, self._windows[account][to]) + transferred
