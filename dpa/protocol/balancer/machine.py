"""The load balancer's state machine: load reports in, numbered routing tables out, for every stage. The decisions are
`dpa.balance`'s."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from dpa.balance.decision import Decision, Outcome
from dpa.balance.policy import BalancedStage, BalancePolicy, require_reducer
from dpa.errors import BalanceError, ProtocolError
from dpa.measure.load import MeasuredKey
from dpa.protocol.graph import Graph
from dpa.protocol.machine import Machine
from dpa.protocol.rules import Rule, RuledMachine, State, on, on_each, when
from dpa.protocol.wire.addresses import BALANCER, COORDINATOR, Address
from dpa.protocol.wire.events import Redistribute, Tick
from dpa.protocol.wire.messages.cuts import Thaw
from dpa.protocol.wire.messages.end import Freeze, LastTable
from dpa.protocol.wire.messages.members import ChangeMembers, MembersChanged, Unsubscribe, Unsubscribed
from dpa.protocol.wire.messages.migration import Settled
from dpa.protocol.wire.messages.splits import Begin
from dpa.protocol.wire.messages.tables import CurrentTable, DecisionReport, LoadReport, OfferedReport, TableUpdate
from dpa.routing.change import TableChange
from dpa.routing.keys import Key
from dpa.routing.members import left_by
from dpa.routing.table import RoutingTable

_CHANGE = "change of members"  # key of the postponed change


class BalanceState(State):
    """The states of one stage's balance."""

    BALANCING = "balancing"
    SETTLING = "settling"
    FREEZING = "freezing"
    FROZEN = "frozen"


class StageBalance(RuledMachine):
    """One stage: its policy, and who must know its tables.

    Changes of a table are sent at once. Refusals and hot keys wait for a tick, because each load report can cause some.

    If a table moves states, the next one waits until all tasks have settled it. In migrate mode every table moves
    states, in merge mode only a table by which tasks leave."""

    def __init__(
        self, balancer: Machine, stage: str, policy: BalancePolicy, senders: Sequence[Address], *, migrates: bool
    ) -> None:
        super().__init__(BalanceState.BALANCING)
        self._balancer = balancer
        self._stage = stage
        self._policy = policy
        self._senders = list(senders)
        self._told_senders = tuple(senders)
        self._leaving: set[Address] = set()
        self._migrates = migrates
        self._unreported: list[Decision] = []
        self._told_hottest: tuple[MeasuredKey, ...] | None = None
        self._participants: set[Address] = set()
        self._settled: set[Address] = set()
        self._postponed: dict[Address | int | str, tuple[Address, LoadReport | Redistribute | ChangeMembers]] = {}
        self._is_changing = False

    @property
    def table(self) -> RoutingTable:
        return self._policy.table

    def report(self) -> None:
        hottest = self._policy.hottest
        if self._unreported or hottest != self._told_hottest:
            self._balancer.send(COORDINATOR, DecisionReport(self._stage, tuple(self._unreported), hottest))
            self._unreported, self._told_hottest = [], hottest

    @property
    def is_settled(self) -> bool:
        """Whether no task waits for a marker of its senders."""
        return not self._participants

    def add_sender(self, task: Address) -> None:
        self._senders.append(task)
        self._tell(task, self.table)

    def keeps(self, task: Address) -> bool:
        """Whether a report of the task waits until all have settled the table."""
        return task in self._postponed

    def remove(self, task: Address) -> None:
        self._leaving.discard(task)
        if task in self._senders:
            self._senders.remove(task)
        if task.stage == self._stage:
            self._policy.forget(task.index)

    def forget_sender(self, task: Address, edge: int) -> None:
        self._policy.forget_sender((task, edge))

    def _tell(self, task: Address, table: RoutingTable, closed: int | None = None) -> None:
        self._balancer.send(task, CurrentTable(self._stage, table, tuple(self._senders), closed))

    def _change_members(self, sender: Address, message: ChangeMembers) -> State | None:
        before, change = self.table, message.change
        self._policy.change_members(change)
        for index in change.coming:
            self._tell(Address(self._stage, index), before, message.closed)
        self._leaving |= {Address(self._stage, index) for index in change.going}
        self._is_changing = True
        following = self._publish(before)
        if self.is_settled:
            self._changed()
        return following

    def _changed(self) -> None:
        self._is_changing = False
        self._balancer.send(COORDINATOR, MembersChanged(self._stage))

    def _publish(self, before: RoutingTable) -> State | None:
        table, members = self.table, [Address(self._stage, index) for index in self.table.members]
        senders = tuple(self._senders)
        update = TableUpdate(
            self._stage, TableChange.between(before, table), None if senders == self._told_senders else senders
        )
        self._told_senders = senders
        for subscriber in dict.fromkeys([*senders, *members, *sorted(self._leaving)]):
            self._balancer.send(subscriber, update)
        if not (self._migrates or left_by(before, table)):
            return None
        self._participants = {Address(self._stage, index) for index in before.members} | set(members)
        return BalanceState.SETTLING

    def _load_report(self, sender: Address, message: LoadReport) -> State | None:
        before = self.table
        return self._record(self._policy.report(sender.index, message.load, self._balancer.now), before)

    def _offered_report(self, sender: Address, message: OfferedReport) -> None:
        self._policy.offered((sender, message.edge), message.offered, self._balancer.now, message.edge)

    def _redistribute(self, sender: Address, event: Redistribute) -> State | None:
        before = self.table
        if event.node_id not in before.members:  # it has left since that was asked
            return None
        return self._record(self._policy.redistribute(event.node_id, self._balancer.now), before)

    def _record(self, decision: Decision | None, before: RoutingTable) -> State | None:
        if decision is None:
            return None
        self._unreported.append(decision)
        if decision.outcome is not Outcome.APPLIED:
            return None
        following = self._publish(before)
        self.report()
        return following

    def _postpone_report(self, sender: Address, message: LoadReport) -> None:
        # A task that has not settled counts records that it is about to give away, as if they were its own by the
        # newest table: its report is dropped. Of the others the newest is kept.
        if sender in self._settled:
            self._postponed[sender] = (sender, message)

    def _postpone(self, sender: Address, event: Redistribute) -> None:
        self._postponed[event.node_id] = (sender, event)

    def _postpone_change(self, sender: Address, message: ChangeMembers) -> None:
        self._postponed = {_CHANGE: (sender, message), **self._postponed}

    def _task_settled(self, sender: Address, message: Settled) -> State | None:
        return BalanceState.BALANCING if self._is_last_to_settle(sender, message) else None

    def _settled_at_last(self, sender: Address, message: Settled) -> State | None:
        return self._end() if self._is_last_to_settle(sender, message) else None

    def _is_last_to_settle(self, sender: Address, message: Settled) -> bool:
        if message.version != self.table.version or sender not in self._participants - self._settled:
            raise ProtocolError(f"{sender} cannot have settled table {message.version} of {self._stage} now")
        self._settled.add(sender)
        if self._settled < self._participants:
            return False
        self._participants, self._settled = set(), set()
        if self._is_changing:
            self._changed()
        return True

    def _take_up(self) -> None:
        while self._postponed and self.state is BalanceState.BALANCING:
            first = next(iter(self._postponed))
            self.dispatch(self._balancer.address, *self._postponed.pop(first))

    def _freeze_settled(self, sender: Address, message: Freeze) -> State:
        return BalanceState.FREEZING

    def _freeze(self, sender: Address, message: Freeze) -> State:
        return self._end()

    def _end(self) -> State:
        self.report()
        self._balancer.send(COORDINATOR, LastTable(self._stage, self.table, self._policy.rounds))
        return BalanceState.FROZEN

    def _thaw(self, sender: Address, message: Thaw) -> State:
        return BalanceState.BALANCING

    RULES: ClassVar[tuple[Rule, ...]] = (
        on(LoadReport, BalanceState.BALANCING, _load_report, "decide; publish if acted", (None, BalanceState.SETTLING)),
        on(OfferedReport, [BalanceState.BALANCING, BalanceState.SETTLING], _offered_report, "note what is offered"),
        on(Redistribute, BalanceState.BALANCING, _redistribute, "relieve the task", (None, BalanceState.SETTLING)),
        on(ChangeMembers, BalanceState.BALANCING, _change_members, "publish to all", (None, BalanceState.SETTLING)),
        on(ChangeMembers, BalanceState.SETTLING, _postpone_change, "keep until the table is settled"),
        on(Freeze, BalanceState.BALANCING, _freeze, "answer with the version", BalanceState.FROZEN),
        on(LoadReport, BalanceState.SETTLING, _postpone_report, "keep a settled task's, until the table is settled"),
        on(Redistribute, BalanceState.SETTLING, _postpone, "keep until the table is settled"),
        on(Settled, BalanceState.SETTLING, _task_settled, "after the last, continue", (None, BalanceState.BALANCING)),
        on(Freeze, BalanceState.SETTLING, _freeze_settled, "answer when settled", BalanceState.FREEZING),
        on(Settled, BalanceState.FREEZING, _settled_at_last, "after the last, answer", (None, BalanceState.FROZEN)),
        when(BalanceState.BALANCING, _take_up, "handle what was kept, as if it came now"),
        on(Thaw, BalanceState.FROZEN, _thaw, "continue", BalanceState.BALANCING),
        on(Redistribute, [BalanceState.FREEZING, BalanceState.FROZEN], _postpone, "keep until the table may change"),
        *on_each(
            (LoadReport, OfferedReport), [BalanceState.FREEZING, BalanceState.FROZEN], RuledMachine._ignore, "ignore"
        ),
    )


class LoadBalancerState(State):
    """The load balancer itself has one state; each stage has its own."""

    RUNNING = "running"


class LoadBalancerMachine(Machine):
    """The balances of all stages, in one task."""

    stages: dict[str, StageBalance]

    def __init__(self, policies: Mapping[str, BalancePolicy], graph: Graph) -> None:
        super().__init__(BALANCER, LoadBalancerState.RUNNING)
        self._graph = graph
        self._leaving: list[Unsubscribe] = []
        self.stages = {
            name: StageBalance(self, name, policy, graph.senders(name), migrates=graph[name].migrates)
            for name, policy in policies.items()
        }

    def key_lookup(self, key: Key, stage: str) -> int:
        """The task of a stage that owns a key by the newest table (DPA paper, section 4.2)."""
        return self.stages[stage].table.key_lookup(key)

    def require_task(self, stage: str, node_id: int) -> None:
        """Check that there is such a task. Raises BalanceError if there is none."""
        if stage not in self.stages:
            raise BalanceError(f"there is no balanced stage {stage!r}; there is {', '.join(self.stages)}")
        require_reducer(self.stages[stage].table, node_id)

    def _change_members(self, sender: Address, message: ChangeMembers) -> None:
        tasks = [Address(message.stage, index) for index in message.change.coming]
        for task in tasks:
            for stage in self._fed_by(task.stage):
                stage.add_sender(task)
        if not self._graph.is_source(message.stage):
            self.for_named_stage(sender, message)
            return
        for task in tasks:
            self.send(task, Begin())  # on the channel on which its tables come: so it has them
        self.send(COORDINATOR, MembersChanged(message.stage))

    def _fed_by(self, stage: str) -> list[StageBalance]:
        return [self.stages[name] for name in dict.fromkeys(edge.target for _, edge in self._graph.out_of(stage))]

    def _unsubscribe(self, sender: Address, message: Unsubscribe) -> None:
        self._leaving.append(message)

    def states(self) -> dict[str, object]:
        found = super().states()
        for name, stage in self.stages.items():
            found |= {f"stage {name}": stage.state.value, f"routing table of {name}": stage.table.version}
        return found

    def _go_on(self) -> None:
        for stage in self.stages.values():
            stage.advance()
        # A task may go when no task waits for its markers, and its last report has come, on a channel of its own.
        for leaving in list(self._leaving):
            task, own = leaving.task, self.stages.get(leaving.task.stage)
            has_all = self.delivered(task) >= leaving.reports and not (own is not None and own.keeps(task))
            if has_all and all(stage.is_settled for stage in self._fed_by(task.stage)):
                self._leaving.remove(leaving)
                for stage in self._fed_by(task.stage):
                    stage.remove(task)
                for number, edge in self._graph.out_of(task.stage):
                    self.stages[edge.target].forget_sender(task, number)
                if own is not None:
                    own.remove(task)
                self.send(COORDINATOR, Unsubscribed(task))

    def _tick(self, sender: Address, event: Tick) -> None:
        for stage in self.stages.values():
            stage.report()

    RULES: ClassVar[tuple[Rule, ...]] = (
        on(LoadReport, LoadBalancerState.RUNNING, Machine.for_senders_stage, "to the stage"),
        on(OfferedReport, LoadBalancerState.RUNNING, Machine.for_named_stage, "to the stage"),
        on(Settled, LoadBalancerState.RUNNING, Machine.for_senders_stage, "to the stage"),
        *on_each((Redistribute, Freeze, Thaw), [LoadBalancerState.RUNNING], Machine.for_named_stage, "to the stage"),
        on(ChangeMembers, LoadBalancerState.RUNNING, _change_members, "give new tasks the tables; to the stage"),
        on(Unsubscribe, LoadBalancerState.RUNNING, _unsubscribe, "answer when no task waits for its marker"),
        on(Tick, LoadBalancerState.RUNNING, _tick, "report refusals and hot keys"),
        when(LoadBalancerState.RUNNING, _go_on, "advance the stages; release tasks whose markers no task waits for"),
    )


def load_balancer_of(graph: Graph) -> LoadBalancerMachine:
    policies = {
        stage.name: stage.balance.policy(
            BalancedStage(
                stage.tasks,
                may_split=not stage.migrates,
                first=stage.first,
                feeds={number: edge.source for number, edge in graph.into(stage.name)},
            )
        )
        for stage in graph.queue_fed()
    }
    return LoadBalancerMachine(policies, graph)
