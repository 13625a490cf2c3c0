"""The load balancer: numbered tables go at once to all who need them, refusals wait, a stage's freeze is final."""

from __future__ import annotations

import numpy as np
import pytest
from builders import same_table
from wires import Wire, last_versions, mapper, reducer, sent

from dpa.balance.decision import Outcome
from dpa.balance.options import BY_STRATEGY, BalanceOptions
from dpa.errors import BalanceError, ProtocolError
from dpa.measure.load import KeySample, Load, Offered
from dpa.protocol.balancer.machine import StageBalance, load_balancer_of
from dpa.protocol.graph import REDUCER, Edge, Graph, Stage
from dpa.protocol.wire.addresses import COORDINATOR, Address
from dpa.protocol.wire.events import Redistribute, Start, Tick
from dpa.protocol.wire.instructions import Instruction
from dpa.protocol.wire.messages.end import Freeze, LastTable
from dpa.protocol.wire.messages.members import ChangeMembers, Unsubscribe, Unsubscribed
from dpa.protocol.wire.messages.migration import Settled
from dpa.protocol.wire.messages.tables import DecisionReport, LoadReport, OfferedReport, TableUpdate
from dpa.routing.members import MemberChange
from dpa.routing.table import RoutingTable
from experiments.simulated_jobs.map_reduce import map_reduce


class Balancer(Wire):
    """The load balancer of two mappers and three reducers, or of another graph."""

    def __init__(self, strategy: str = "halving", graph: Graph | None = None, **options) -> None:
        self.balancer = load_balancer_of(graph or map_reduce((), 2, 3, balance=balance(strategy, **options)))
        super().__init__(self.balancer)

    @property
    def stage(self) -> StageBalance:
        return self.balancer.stages[REDUCER]

    @property
    def table(self) -> RoutingTable:
        return self.stage.table

    def report(self, index: int, queue: int, now: float = 0.0, stage: str = REDUCER) -> list[Instruction]:
        """A task that holds the newest table reports its queue."""
        load = Load(queue, self.balancer.stages[stage].table.version)
        return self(Address(stage, index), LoadReport(load), now)

    def event(self, event: Tick | Redistribute | Start) -> list[Instruction]:
        return self.balancer.handle(event, 0.0)

    def freeze(self, stage: str = REDUCER) -> list[Instruction]:
        return self(COORDINATOR, Freeze(stage))


def balance(strategy: str = "halving", **options) -> BalanceOptions:
    looks = {} if strategy == "none" else {"check_seconds": 0.0}
    queues = {"min_queue": 1} if strategy in ("halving", "doubling") else {}
    given = {"initial_tokens": 8, **looks, **queues, **options}
    return BY_STRATEGY[strategy](**given)


def outcomes(instructions: list[Instruction]) -> list[Outcome]:
    """What is reported to the coordinator, in order."""
    return [decision.outcome for _, report in sent(instructions, DecisionReport) for decision in report.decisions]


def tables(instructions: list[Instruction]) -> list[int]:
    return [update.change.version for _, update in sent(instructions, TableUpdate)]


def test_a_redistribution_goes_out_at_once_to_all_and_after_the_refusals_before_it_to_the_coordinator() -> None:
    balancer = Balancer()
    before = balancer.table
    balancer.report(0, 0)
    instructions = balancer.report(1, 100)
    receivers = [to for to, _ in sent(instructions, TableUpdate)]
    assert receivers == [mapper(0), mapper(1), reducer(0), reducer(1), reducer(2)]
    [change] = {update.change for _, update in sent(instructions, TableUpdate)}
    assert same_table(change.apply(before), balancer.table)
    assert outcomes(instructions) == [Outcome.BELOW_THRESHOLD, Outcome.APPLIED]


def test_a_refusal_waits_for_a_tick() -> None:
    balancer = Balancer()
    assert balancer.report(0, 0) == [] == balancer.report(2, 0)
    assert outcomes(balancer.event(Tick())) == [Outcome.BELOW_THRESHOLD] * 2
    assert balancer.event(Tick()) == []


def test_the_policy_knows_the_time_and_under_which_table_a_queue_was_measured() -> None:
    balancer = Balancer(check_seconds=1.0)
    for now in (5.0, 5.5, 6.5, 7.0):
        balancer.report(0, 0, now)
    look, wait = Outcome.BELOW_THRESHOLD, Outcome.COOL_DOWN
    assert outcomes(balancer.event(Tick())) == [wait, wait, look, wait]
    balancer = Balancer()
    balancer.report(1, 100)
    balancer(reducer(1), LoadReport(Load(100, version=0)))
    assert outcomes(balancer.event(Tick())) == [wait]


def test_a_redistribution_may_be_asked_for_and_a_key_is_looked_up_in_the_newest_table() -> None:
    balancer, versions = Balancer(), []
    while found := set(tables(balancer.event(Redistribute(REDUCER, 0)))):
        versions += found
        owners = [balancer.table.key_lookup(key) for key in range(100)]
        assert [balancer.balancer.key_lookup(key, REDUCER) for key in range(100)] == owners
    assert versions == [1, 2, 3]  # 8, 4, 2, 1 tokens


def test_with_balancing_off_nothing_is_published() -> None:
    balancer = Balancer("none")
    assert balancer.report(0, 1000) == []
    assert tables(balancer.event(Redistribute(REDUCER, 0))) == []


# --- what senders offer


def offered(*hashes: int, seconds: float = 0.5) -> Offered:
    """A thousand records of each of these keys."""
    found = np.array(sorted(hashes), np.uint32)
    return Offered(seconds, KeySample(found, np.full(len(found), 1_000.0), 1_000.0), {int(one): one for one in found})


def busy(balancer: Balancer, hot: int) -> list[Instruction]:
    """All tasks report that they are busy, with nothing of note queued."""
    instructions = []
    for index in range(3):
        load = Load(1, balancer.table.version, 0.002, evidence=500.0, busy=1.0 if index == hot else 0.2)
        instructions += balancer(reducer(index), LoadReport(load), 1.0)
    return instructions


def test_keys_that_are_offered_move_or_split_however_short_the_queues() -> None:
    balancer = Balancer("adaptive")
    for sender in (mapper(0), mapper(1)):
        assert balancer(sender, OfferedReport(REDUCER, 0, offered(7)), 1.0) == []
    owner = int(balancer.table.owners_of(np.array([7], np.uint32))[0])
    assert set(tables(busy(balancer, owner))) == {1}
    assert tables(busy(Balancer("adaptive"), 0)) == [], "without offers short queues say nothing"


@pytest.mark.parametrize("strategy", BY_STRATEGY)
def test_every_policy_takes_what_is_offered_and_a_frozen_stage_ignores_it(strategy: str) -> None:
    balancer = Balancer(strategy)
    assert balancer(mapper(0), OfferedReport(REDUCER, 0, offered(7))) == []
    balancer.freeze()
    assert balancer(mapper(0), OfferedReport(REDUCER, 0, offered(7))) == []
    assert balancer.table.version == 0


def test_a_sender_with_two_edges_to_a_stage_offers_the_sum_of_both() -> None:
    balancer = Balancer("adaptive")
    for edge in (0, 1):
        balancer(mapper(0), OfferedReport(REDUCER, edge, offered(7, seconds=1.0)), 1.0)
    balancer(mapper(0), OfferedReport(REDUCER, 1, offered(seconds=0.0)), 1.0)
    [(_, report), *_] = sent(busy(balancer, 0) + balancer.event(Tick()), DecisionReport)
    assert report.decisions


def test_hot_keys_are_reported_at_a_tick_when_they_have_changed() -> None:
    balancer, told = Balancer("adaptive"), []
    told += sent(balancer.event(Tick()) + balancer.event(Tick()), DecisionReport)
    balancer(mapper(0), OfferedReport(REDUCER, 0, offered(7, 9)), 1.0)
    told += sent(busy(balancer, 0) + balancer.event(Tick()) + balancer.event(Tick()), DecisionReport)
    assert [[key.share for key in report.hottest or ()] for _, report in told] == [[], [0.5, 0.5]]
    assert sent(Balancer("halving").event(Tick()), DecisionReport) == []


# --- the freeze


def test_a_freeze_is_answered_with_the_number_of_the_last_table_after_all_that_was_decided() -> None:
    balancer = Balancer()
    balancer.report(1, 100)
    balancer.report(1, 0)
    instructions = balancer.freeze()
    assert outcomes(instructions) == [Outcome.BELOW_THRESHOLD]
    [(to, last)] = sent(instructions, LastTable)
    assert (to, last.table.version) == (COORDINATOR, balancer.table.version) == (COORDINATOR, 1)
    assert instructions[-1].envelope.message is last
    assert balancer.report(1, 100) == [] == balancer.event(Redistribute(REDUCER, 1)) == balancer.event(Tick())
    assert balancer.table.version == 1, "no table is published whatever comes"


# --- several stages


def two_stages() -> Balancer:
    """`words` with two tasks feeds `counts` with three and `ranks` with one; `counts` feeds `ranks` too."""
    stages = (Stage("words", 2), Stage("counts", 3, balance=balance()), Stage("ranks", 2, balance=balance("none")))
    edges = (Edge("words", "counts"), Edge("counts", "ranks"), Edge("words", "ranks"))
    return Balancer(graph=Graph(stages, edges))


def test_each_stage_has_a_policy_and_a_freeze_of_its_own() -> None:
    balancer = two_stages()
    balancer.report(1, 0, stage="counts")
    assert outcomes(balancer.report(0, 100, stage="ranks")) == []
    instructions = balancer.freeze("ranks")
    assert last_versions(instructions) == [(COORDINATOR, "ranks", 0)]
    assert [report.stage for _, report in sent(balancer.report(2, 100, stage="counts"), DecisionReport)] == ["counts"]
    assert last_versions(balancer.freeze("counts")) == [(COORDINATOR, "counts", 1)]


@pytest.mark.parametrize(
    ("stage", "node_id", "what"),
    [("counts", 3, "3"), ("words", 0, "there is no balanced stage 'words'; there is counts, ranks")],
)
def test_only_a_task_of_a_balanced_stage_can_be_relieved(stage: str, node_id: int, what: str) -> None:
    two_stages().balancer.require_task("counts", 2)
    with pytest.raises(BalanceError, match=what):
        two_stages().balancer.require_task(stage, node_id)


# --- a stage whose states migrate


class MigratingBalancer(Balancer):
    """Whose tables must be settled."""

    def __init__(self, **options) -> None:
        stage = {"balance": balance("doubling", **options), "consistency": "migrate"}
        super().__init__(graph=map_reduce((), 2, 3, **stage))

    def settled(self, index: int, version: int = 1) -> list[Instruction]:
        return self(reducer(index), Settled(version))

    def loaded(self, index: int, queue: int, version: int) -> list[Instruction]:
        return self(reducer(index), LoadReport(Load(queue, version)))


def test_where_states_migrate_no_table_is_published_before_all_tasks_have_settled_the_last() -> None:
    balancer = MigratingBalancer()
    assert tables(balancer.report(1, 100)) == [1] * 5
    assert balancer.settled(0) == balancer.loaded(0, 500, version=1) == balancer.settled(2) == []
    assert tables(balancer.settled(1)) == [2] * 5, "by the load that was reported meanwhile"
    assert balancer.table.version == 2


@pytest.mark.parametrize(
    ("before_settled", "after"),
    [
        ([], [(0, 500), (0, 0)]),  # of the loads that a task reports meanwhile the last one counts
        ([(1, 2_000)], []),  # one that counts what the task is about to give away does not
    ],
)
def test_some_loads_that_are_reported_meanwhile_make_no_table(
    before_settled: list[tuple[int, int]], after: list[tuple[int, int]]
) -> None:
    balancer = MigratingBalancer()
    balancer.report(1, 100)
    for index, queue in before_settled:
        balancer.loaded(index, queue, version=1)
    found = balancer.settled(0)
    for index, queue in after:
        balancer.loaded(index, queue, version=1)
    assert tables([*found, *balancer.settled(1), *balancer.settled(2)]) == []
    assert outcomes(balancer.event(Tick())) == [Outcome.BELOW_THRESHOLD] * len(after[:1])


def test_after_a_table_made_by_what_was_kept_the_rest_is_kept_on() -> None:
    balancer = MigratingBalancer()
    for index in range(3):
        balancer.event(Redistribute(REDUCER, index))
    for version in (1, 2, 3):
        assert balancer.table.version == version
        for index in range(3):
            balancer.settled(index, version)
    assert balancer.table.version == 3


def test_a_task_settles_each_table_once() -> None:
    balancer = MigratingBalancer()
    balancer.report(1, 100)
    balancer.settled(0)
    for index, version in ((0, 1), (1, 2)):
        with pytest.raises(ProtocolError, match=f"reducer {index} cannot have settled table {version} of reducer now"):
            balancer.settled(index, version)


def test_the_adaptive_policy_of_a_stage_whose_states_migrate_may_not_split_keys() -> None:
    for consistency in ("merge", "migrate"):
        graph = map_reduce((), 1, 2, balance=BY_STRATEGY["adaptive"](), consistency=consistency)
        policy = load_balancer_of(graph).stages[REDUCER]._policy
        assert policy._aim.may_split is (consistency == "merge")


# --- tasks that leave


def test_a_task_is_let_go_when_its_last_report_has_come() -> None:
    balancer = Balancer()
    balancer(COORDINATOR, ChangeMembers(REDUCER, MemberChange(leaves=(2,))))
    for index in range(3):
        balancer(reducer(index), Settled(1))
    assert sent(balancer(COORDINATOR, Unsubscribe(reducer(2), reports=2)), Unsubscribed) == []
    assert len(sent(balancer(reducer(2), LoadReport(Load(0, 1))), Unsubscribed)) == 1


def test_a_task_that_left_offers_a_stage_nothing_any_more() -> None:
    balancer = Balancer("adaptive")
    for task in (mapper(0), mapper(1)):
        balancer(task, OfferedReport(REDUCER, 0, offered(1, seconds=1.0)))
    arrivals = balancer.stage._policy._arrivals
    assert arrivals.rate == 2_000
    balancer(COORDINATOR, Unsubscribe(mapper(1), reports=1))
    assert arrivals.rate == 1_000
