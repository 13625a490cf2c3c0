"""Credit: windows and bounds, whatever is pushed, processed, forwarded and learned meanwhile."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from builders import limits_of
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dpa.protocol.flow_control import CreditLimits
from dpa.protocol.task._credit import Credit


@pytest.mark.parametrize(
    ("seconds", "service", "senders", "window"),
    [
        (0.5, 0.01, 1, 50),
        (0.5, 0.01, 4, 12),
        (0.5, 3.0, 1, 1),
        (0.5, 1e-9, 1, 1_000),
        (0.5, 0.0, 1, 1_000),
        (0.5, 5e-324, 1, 1_000),
        (0.5, None, 1, None),
        (None, 0.01, 1, None),
    ],
)
def test_a_window_is_what_the_receiver_processes_in_the_delay(
    seconds: float | None, service: float | None, senders: int, window: int | None
) -> None:
    assert limits_of(1_000, seconds=seconds).flow.window(service, senders) == window


@pytest.mark.parametrize(
    ("records", "seconds", "service", "first"),
    [(1_000, 0.5, 0.002, 125), (1_000, 0.5, None, 64), (10, 0.5, None, 10), (1_000, None, 0.002, 1_000)],
)
def test_a_window_begins_as_large_as_what_is_known_beforehand_lets_it_and_small_where_nothing_is(
    records: int, seconds: float | None, service: float | None, first: int
) -> None:
    flow = limits_of(records, seconds=seconds).flow
    limits = CreditLimits(flow, flow.window(service, 2))
    assert limits.first_window == Credit(limits, range(2)).window(1) == first


def test_where_a_cut_waits_for_the_longest_queue_each_receiver_has_its_share() -> None:
    credit = Credit(replace(limits_of(1_000, bytes=100_000), divided=True), range(4))
    assert [credit.room(0, 1_000), credit.room(1, 1_000)] == [250, 250]
    credit.serve(range(5), 5)
    credit.resize(0, 900)
    assert credit.window(0) == 200
    credit.weigh(1e6)
    assert credit.window(0) == 1
    assert Credit(replace(limits_of(1_000, seconds=0.5), divided=True), range(4)).window(0) == 64, "those of the delay"


def test_what_waits_is_cut_but_not_into_crumbs() -> None:
    credit = Credit(limits_of(100), range(1))
    credit.spend(0, 80)
    assert [credit.room(0, wanted) for wanted in (10, 20, 21)] == [10, 20, 0]
    credit.give_back(0, 5)
    assert credit.room(0, 1_000) == 25


@given(st.integers(1, 10_000), st.floats(1e-6, 1e6), st.floats(1e-6, 1e9), st.integers(1, 64))
def test_all_windows_together_are_worth_no_more_than_the_delay(
    records: int, seconds: float, service: float, senders: int
) -> None:
    window = limits_of(records, seconds=seconds).flow.window(service, senders)
    assert window is not None
    assert 1 <= window <= records
    assert window == 1 or senders * window * service <= seconds * (1 + 1e-9)
    assert math.isclose(window, records) or (window + 1) * senders * service > seconds * (1 - 1e-9)


class Accounts(RuleBasedStateMachine):
    """A sender, three receivers, and what is on its way from them to the sender.

    Attributes:
        has: the records that each receiver has, in truth.
        transfers: of forwarded records: (from, to, records), not known to the sender yet.
    """

    RECEIVERS = 3

    @initialize(records=st.integers(1, 60), seconds=st.sampled_from([None, 0.5]))
    def begin(self, records: int, seconds: float | None) -> None:
        self.limits = limits_of(records, bytes=1_000, seconds=seconds)
        self.credit = Credit(self.limits, range(self.RECEIVERS))
        self.has = [0] * self.RECEIVERS
        self.transfers: list[tuple[int, int, int]] = []

    @rule(to=st.integers(0, 2), wanted=st.integers(1, 100))
    def push(self, to: int, wanted: int) -> None:
        room = self.credit.room(to, wanted)
        assert 0 <= room <= wanted
        if not room:
            return
        self.credit.spend(to, room)
        self.has[to] += room
        assert self.credit.in_flight <= self.credit.most
        forwarded = sum(records for _, receiver, records in self.transfers if receiver == to)
        assert self.has[to] <= self.credit.window(to) + forwarded

    @rule(by=st.integers(0, 2), share=st.floats(0, 1))
    def process(self, by: int, share: float) -> None:
        records = round(share * self.has[by])
        self.has[by] -= records
        self.credit.give_back(by, records)

    @rule(of=st.integers(0, 2), to=st.integers(0, 2), share=st.floats(0, 1))
    def forward(self, of: int, to: int, share: float) -> None:
        records = round(share * self.has[of])
        self.has[of] -= records
        self.has[to] += records
        self.transfers.append((of, to, records))

    @precondition(lambda self: self.transfers)
    @rule(data=st.data())
    def hear_of_a_transfer(self, data: st.DataObject) -> None:
        self.credit.transfer(*self.transfers.pop(data.draw(st.integers(0, len(self.transfers) - 1))))

    @rule(receiver=st.integers(0, 2), window=st.integers(1, 60))
    def hear_of_a_window(self, receiver: int, window: int) -> None:
        self.credit.resize(receiver, min(window, self.limits.flow.in_flight_records))

    @rule(row_bytes=st.floats(0, 2_000))
    def weigh(self, row_bytes: float) -> None:
        self.credit.weigh(row_bytes)

    @invariant()
    def accounts_are_what_receivers_have_but_for_what_is_on_its_way(self) -> None:
        if not hasattr(self, "credit"):
            return
        known = [self.credit.in_flight_to[receiver] for receiver in range(self.RECEIVERS)]
        for of, to, records in self.transfers:
            known[of] -= records
            known[to] += records
        assert known == self.has
        assert 0 <= self.credit.in_flight == sum(self.has) == sum(self.credit.in_flight_to.values())

    @invariant()
    def with_nothing_in_flight_whatever_waits_may_go(self) -> None:
        if hasattr(self, "credit") and not self.credit.in_flight and not self.transfers:
            assert all(self.credit.room(receiver, 1) for receiver in range(self.RECEIVERS))
            assert all(self.credit.room(receiver, 1_000) for receiver in range(self.RECEIVERS))


TestAccounts = Accounts.TestCase
