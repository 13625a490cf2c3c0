"""The load balancer's state machine: load reports in, numbered routing tables out. What to do is `dpa.balance`'s to
say."""

from __future__ import annotations

from dpa.balance.decision import Decision, Outcome
from dpa.balance.policy import BalancePolicy, require_reducer
from dpa.protocol.machine import Machine, Redistribute, Tick
from dpa.protocol.messages import (
    BALANCER,
    COORDINATOR,
    Address,
    DecisionReport,
    Freeze,
    LastTable,
    LoadReport,
    TableUpdate,
    mapper,
    reducer,
)
from dpa.routing.change import TableChange
from dpa.routing.keys import Key
from dpa.routing.table import RoutingTable


class LoadBalancerMachine(Machine):
    """States: balancing, frozen. What each message does in each:

    | message        | balancing                                     | frozen           |
    | -------------- | --------------------------------------------- | ---------------- |
    | `LoadReport`   | decide; publish the next table where it acted | ignore           |
    | `Redistribute` | relieve the reducer; publish where it acted   | ignore           |
    | `Freeze`       | answer with the epoch; publish no more        | cannot come      |
    | `Tick`         | report refusals                               | nothing is left  |

    What changes in a table goes out at once; refusals, of which there can be one for each load report, wait for a tick.
    """

    def __init__(self, policy: BalancePolicy, mappers: int) -> None:
        """Publish to so many mappers and to all reducers of the policy's table."""
        super().__init__(BALANCER)
        self._policy = policy
        self._subscribers = [mapper(index) for index in range(mappers)]
        self._subscribers += [reducer(index) for index in range(policy.table.reducers)]
        self._unreported: list[Decision] = []
        self.state = "balancing"
        self.on(LoadReport, self._load_report)
        self.on(Redistribute, self._redistribute)
        self.on(Freeze, self._freeze, "balancing")
        self.on(Tick, self._tick)

    @property
    def table(self) -> RoutingTable:
        """The newest table."""
        return self._policy.table

    def key_lookup(self, key: Key) -> int:
        """The reducer that owns a key in the newest table (DPA paper, section 4.2)."""
        return self.table.key_lookup(key)

    def require_reducer(self, node_id: int) -> None:
        """Check that there is such a reducer.

        Raises:
            BalanceError: there is none.
        """
        require_reducer(self.table, node_id)

    def _load_report(self, sender: Address, message: LoadReport) -> None:
        if self.state == "balancing":
            before = self.table
            self._record(self._policy.report(sender.index, message.load, self.now), before)

    def _redistribute(self, sender: Address, event: Redistribute) -> None:
        if self.state == "balancing":
            before = self.table
            self._record(self._policy.redistribute(event.node_id, self.now), before)

    def _record(self, decision: Decision | None, before: RoutingTable) -> None:
        if decision is None:
            return
        self._unreported.append(decision)
        if decision.outcome is Outcome.APPLIED:
            change = TableChange.between(before, self.table)
            for subscriber in self._subscribers:
                self.send(subscriber, TableUpdate(change))
            self._report()

    def _freeze(self, sender: Address, message: Freeze) -> None:
        self.state = "frozen"
        self._report()
        self.send(COORDINATOR, LastTable(self.table.epoch))

    def _tick(self, sender: Address, event: Tick) -> None:
        self._report()

    def _report(self) -> None:
        if self._unreported:
            self.send(COORDINATOR, DecisionReport(tuple(self._unreported)))
            self._unreported.clear()
