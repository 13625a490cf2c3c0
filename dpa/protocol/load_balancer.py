"""The load balancer's state machine: load reports in, numbered routing tables out, for every stage. The decisions are
`dpa.balance`'s."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from dpa.balance.decision import Decision, Outcome
from dpa.balance.policy import BalancePolicy, require_reducer
from dpa.errors import BalanceError, ProtocolError
from dpa.protocol.addresses import BALANCER, COORDINATOR, Address
from dpa.protocol.machine import Machine, Redistribute, Tick
from dpa.protocol.messages import DecisionReport, Freeze, LastTable, LoadReport, OfferedReport, Settled, TableUpdate
from dpa.protocol.rules import Rule, RuledMachine, State, on, on_each
from dpa.routing.change import TableChange
from dpa.routing.keys import Key
from dpa.routing.table import RoutingTable


class BalanceState(State):
    """The states of one stage's balance."""

    BALANCING = "balancing"
    SETTLING = "settling"
    FREEZING = "freezing"
    FROZEN = "frozen"


class StageBalance(RuledMachine):
    """One stage: its policy, and who must know its tables.

    Changes of a table are sent at once. Refusals, of which there can be one for each load report, wait for a tick.

    Where states migrate, a table is followed by no other before all tasks have settled it.
    """

    def __init__(
        self,
        balancer: Machine,
        stage: str,
        policy: BalancePolicy,
        subscribers: Sequence[Address],
        settling: int | None = None,
    ) -> None:
        """`settling`: how many tasks settle each table; None: tables need not be settled."""
        super().__init__(BalanceState.BALANCING)
        self._balancer = balancer
        self._stage = stage
        self._policy = policy
        self._subscribers = subscribers
        self._unreported: list[Decision] = []
        self._settling = settling
        self._settled: set[Address] = set()
        self._postponed: dict[Address | int, tuple[Address, LoadReport | Redistribute]] = {}

    @property
    def table(self) -> RoutingTable:
        """The newest table."""
        return self._policy.table

    def report(self) -> None:
        """Report the decisions since the last report to the coordinator."""
        if self._unreported:
            self._balancer.send(COORDINATOR, DecisionReport(self._stage, tuple(self._unreported)))
            self._unreported.clear()

    def _load_report(self, sender: Address, message: LoadReport) -> None:
        before = self.table
        self._record(self._policy.report(sender.index, message.load, self._balancer.now), before)

    def _offered_report(self, sender: Address, message: OfferedReport) -> None:
        self._policy.offered((sender, message.edge), message.offered, self._balancer.now)

    def _redistribute(self, sender: Address, event: Redistribute) -> None:
        before = self.table
        self._record(self._policy.redistribute(event.node_id, self._balancer.now), before)

    def _record(self, decision: Decision | None, before: RoutingTable) -> None:
        if decision is None:
            return
        self._unreported.append(decision)
        if decision.outcome is Outcome.APPLIED:
            change = TableChange.between(before, self.table)
            for subscriber in self._subscribers:
                self._balancer.send(subscriber, TableUpdate(self._stage, change))
            self.report()
            if self._settling is not None:
                self.state = BalanceState.SETTLING

    def _postpone_report(self, sender: Address, message: LoadReport) -> None:
        """Keep the newest load of each task that has settled. What one reports before counts records that it is about
        to give away, as if they were its own by the newest table."""
        if sender in self._settled:
            self._postponed[sender] = (sender, message)

    def _postpone(self, sender: Address, event: Redistribute) -> None:
        self._postponed[event.node_id] = (sender, event)

    def _task_settled(self, sender: Address, message: Settled) -> None:
        if message.version != self.table.version or sender in self._settled:
            raise ProtocolError(f"{sender} cannot have settled table {message.version} of {self._stage} now")
        self._settled.add(sender)
        if len(self._settled) < (self._settling or 0):
            return
        self._settled.clear()
        if self.state is BalanceState.FREEZING:
            self._end()
            return
        self.state = BalanceState.BALANCING
        while self._postponed and self.state is BalanceState.BALANCING:
            first = next(iter(self._postponed))
            self.dispatch(self._balancer.address, *self._postponed.pop(first))

    def _freeze_settled(self, sender: Address, message: Freeze) -> None:
        self.state = BalanceState.FREEZING

    def _freeze(self, sender: Address, message: Freeze) -> None:
        self._end()

    def _end(self) -> None:
        self.state = BalanceState.FROZEN
        self._postponed.clear()
        self.report()
        self._balancer.send(COORDINATOR, LastTable(self._stage, self.table.version))

    def _ignore(self, sender: Address, event: object) -> None:
        """An event that no longer matters."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        on(LoadReport, BalanceState.BALANCING, _load_report, "decide; publish the next table if it acted"),
        on(OfferedReport, BalanceState.BALANCING, _offered_report, "note what is offered"),
        on(Redistribute, BalanceState.BALANCING, _redistribute, "relieve the task; publish if it acted"),
        on(Freeze, BalanceState.BALANCING, _freeze, "answer with the version; publish no more"),
        on(LoadReport, BalanceState.SETTLING, _postpone_report, "keep a settled task's until the table is settled"),
        on(OfferedReport, BalanceState.SETTLING, _offered_report, "note what is offered"),
        on(Redistribute, BalanceState.SETTLING, _postpone, "keep until the table is settled"),
        on(Settled, BalanceState.SETTLING, _task_settled, "balance again after the last task, first by what was kept"),
        on(Freeze, BalanceState.SETTLING, _freeze_settled, "answer when the table is settled; publish no more"),
        on(Settled, BalanceState.FREEZING, _task_settled, "answer with the version after the last task"),
        *on_each(
            (LoadReport, OfferedReport, Redistribute), [BalanceState.FREEZING, BalanceState.FROZEN], _ignore, "ignore"
        ),
    )


class LoadBalancerState(State):
    """The load balancer itself has one state; each stage has its own."""

    RUNNING = "running"


class LoadBalancerMachine(Machine):
    """All stages' balances in one task."""

    def __init__(
        self,
        policies: Mapping[str, BalancePolicy],
        subscribers: Mapping[str, Sequence[Address]],
        settling: Mapping[str, int] | None = None,
    ) -> None:
        """`policies` of the stages by name, `subscribers`: the tasks of each stage and those that send to it, and
        `settling`: how many tasks settle each table, of stages whose states migrate."""
        super().__init__(BALANCER, LoadBalancerState.RUNNING)
        self.stages = {
            stage: StageBalance(self, stage, policy, subscribers[stage], (settling or {}).get(stage))
            for stage, policy in policies.items()
        }

    def key_lookup(self, key: Key, stage: str) -> int:
        """The task of a stage that owns a key by the newest table (DPA paper, section 4.2)."""
        return self.stages[stage].table.key_lookup(key)

    def require_task(self, stage: str, node_id: int) -> None:
        """Check that there is such a task.

        Raises:
            BalanceError: there is none.
        """
        if stage not in self.stages:
            raise BalanceError(f"there is no balanced stage {stage!r}; there is {', '.join(self.stages)}")
        require_reducer(self.stages[stage].table, node_id)

    def _of_task(self, sender: Address, message: LoadReport | Settled) -> None:
        self.stages[sender.stage].dispatch(self.address, sender, message)

    def _of_stage(self, sender: Address, message: Freeze | Redistribute | OfferedReport) -> None:
        self.stages[message.stage].dispatch(self.address, sender, message)

    def _tick(self, sender: Address, event: Tick) -> None:
        for stage in self.stages.values():
            stage.report()

    RULES: ClassVar[tuple[Rule, ...]] = (
        on(LoadReport, LoadBalancerState.RUNNING, _of_task, "for the stage"),
        on(OfferedReport, LoadBalancerState.RUNNING, _of_stage, "for the stage"),
        on(Settled, LoadBalancerState.RUNNING, _of_task, "for the stage"),
        on(Redistribute, LoadBalancerState.RUNNING, _of_stage, "for the stage"),
        on(Freeze, LoadBalancerState.RUNNING, _of_stage, "for the stage"),
        on(Tick, LoadBalancerState.RUNNING, _tick, "report refusals"),
    )
