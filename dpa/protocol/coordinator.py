"""The coordinator's state machine: hands out splits, counts records, sees the end and has the states merged."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import replace

from dpa.balance.decision import Decision
from dpa.balance.measure.latency import LatencySketch
from dpa.errors import ProtocolError
from dpa.execution.schemas import ShareSchema, agreed
from dpa.protocol.aggregation import Rounds
from dpa.protocol.history import LoadHistory
from dpa.protocol.machine import JobDone, Machine, Start, Tick
from dpa.protocol.messages import (
    BALANCER,
    COORDINATOR,
    Address,
    Aggregate,
    Aggregated,
    DecisionReport,
    Drain,
    Freeze,
    LastTable,
    MapperReport,
    Merge,
    Merged,
    ReducerReport,
    SplitGrant,
    SplitRequest,
    WriteResult,
    Written,
    reducer,
)
from dpa.protocol.metrics import MapperStats, ReducerStats, Snapshot
from dpa.splits import Split, total_rows

_DECISIONS_KEPT = 2_000
"""Refusals kept in full for the report; all are counted, and applied decisions are always kept."""

_RECENT = 100
"""Applied decisions in a snapshot without history."""

_LOST_SECONDS = 60.0
"""A record that nobody has had for so long, with all mappers done and all queues empty, is taken for lost."""


class CoordinatorMachine(Machine):
    """States: startup, stream, merge, done, failed. What each message does in each (`-` cannot come):

    | message         | stream                                        | merge                 | done        |
    | --------------- | --------------------------------------------- | --------------------- | ----------- |
    | `SplitRequest`  | grant the next split, or none                 | -                     | -           |
    | `MapperReport`  | note; if the last is done, have them drain    | note                  | ignore      |
    | `ReducerReport` | note; if all is processed, freeze the table   | note                  | ignore      |
    | `Aggregated`    | note; commit the round if all have            | -                     | -           |
    | `LastTable`     | have the reducers merge, after the round      | -                     | -           |
    | `Merged`        | -                                             | note; write if all are| -           |
    | `Written`       | -                                             | note; done if all are | -           |
    | `DecisionReport`| note                                          | note                  | ignore      |

    The stream ends when all mappers are done and the reducers have processed as many records as were emitted.
    Forwarding moves records and never makes any, so nothing can then be in flight; empty queues alone would not tell.

    Until then a `Tick` begins a round of aggregation if one is due. A round ends before reducers merge.
    """

    def __init__(
        self,
        splits: Iterable[Split],
        mappers: int,
        reducers: int,
        aggregate_seconds: float | None = None,
        *,
        scattered: bool = False,
    ) -> None:
        """Hand out `splits` in order, each to the next mapper that asks; begin a round of aggregation so many seconds
        after the last one ended, or none. `scattered`: whether states may be elsewhere than with the owners by the
        first table, though there was no other."""
        super().__init__(COORDINATOR)
        self.state = "startup"
        self.started_at: float | None = None
        self.stream_ended_at: float | None = None
        self.first_record_at: float | None = None
        self.done_at: float | None = None
        self._progress_at = 0.0
        self._splits = deque(splits)
        self._scattered = scattered
        self._rows = total_rows(self._splits)
        self._mappers = [MapperStats(index) for index in range(mappers)]
        self._reducers = [ReducerStats(index) for index in range(reducers)]
        self._mappers_done: set[int] = set()
        self._schemas: dict[int, ShareSchema | None] = {}
        self._writing = 0
        self._frozen = False
        self._last_epoch: int | None = None
        self._rounds = Rounds(aggregate_seconds, reducers)
        self._epoch = 0
        self._applied: list[Decision] = []
        self._refused: deque[Decision] = deque(maxlen=_DECISIONS_KEPT)
        self._decision_counts: Counter[str] = Counter()
        self._history = LoadHistory()
        self._latencies: list[LatencySketch] = []
        self.on(Start, self._start, "startup")
        self.on(SplitRequest, self._split_request, "stream")
        self.on(Aggregated, self._aggregated, "stream")
        self.on(LastTable, self._last_table, "stream")
        self.on(Merged, self._merged_report, "merge")
        self.on(Written, self._written, "merge")
        self.on(MapperReport, self._mapper_report)
        self.on(ReducerReport, self._reducer_report)
        self.on(DecisionReport, self._decision_report)
        self.on(Tick, self._tick)

    @property
    def emitted(self) -> int:
        """Records emitted as far as reported; final once all mappers are done."""
        return sum(stats.emitted for stats in self._mappers)

    @property
    def processed(self) -> int:
        """Records processed as far as reported."""
        return sum(stats.processed for stats in self._reducers)

    @property
    def _at(self) -> float:
        """Seconds since the stream began; 0 before, also if the job has failed by then."""
        return 0.0 if self.started_at is None else self.now - self.started_at

    def snapshot(self, *, history: bool = True) -> Snapshot:
        """What is known now; without `history`, only the last applied decisions, no samples and no latency, which is
        little to send however long the job runs."""
        kept = [*self._applied, *self._refused] if history else self._applied[-_RECENT:]
        decisions = sorted(kept, key=lambda decision: decision.at)
        return Snapshot(
            phase=self.state,
            at=self._at,
            rows=self._rows,
            mappers=tuple(self._mappers),
            reducers=tuple(self._reducers),
            epoch=self._epoch,
            decisions=tuple(decisions),
            decision_counts=dict(self._decision_counts),
            samples=self._history.samples if history else (),
            latency=LatencySketch.union(self._latencies) if history else None,
            aggregation=self._rounds.stats,
        )

    def _start(self, sender: Address, event: Start) -> None:
        self.state, self.started_at = "stream", self.now
        self._rounds.start(self.now)

    def _split_request(self, sender: Address, message: SplitRequest) -> None:
        self.send(sender, SplitGrant(self._splits.popleft() if self._splits else None))

    def _mapper_report(self, sender: Address, message: MapperReport) -> None:
        self._mappers[sender.index] = message.stats
        self._progress_at = self.now
        if message.done:
            self._mappers_done.add(sender.index)
            if len(self._mappers_done) == len(self._mappers):
                self._broadcast(Drain())

    def _reducer_report(self, sender: Address, message: ReducerReport) -> None:
        self._note(message.stats)
        if len(self._mappers_done) < len(self._mappers) or self._frozen:
            return
        if self.processed > self.emitted:
            raise ProtocolError(f"{self.processed} records were processed, but only {self.emitted} were emitted")
        if self.processed == self.emitted:
            self._frozen = True
            self.stream_ended_at = self.now
            self.send(BALANCER, Freeze())

    def _last_table(self, sender: Address, message: LastTable) -> None:
        if not self._frozen:
            raise ProtocolError(f"{self.address} got the last table without asking for it")
        self._last_epoch = message.epoch
        self._begin_merge()

    def _aggregated(self, sender: Address, message: Aggregated) -> None:
        commit = self._rounds.note(sender, message, self.now)
        if commit is not None:
            self.instruct(commit)
            self._begin_merge()

    def _begin_merge(self) -> None:
        """Have the reducers merge once the last table is known and no round of aggregation is in progress."""
        if self._last_epoch is not None and not self._rounds.in_progress:
            self.state = "merge"
            self._broadcast(Merge(self._last_epoch, exchange=self._last_epoch > 0 or self._scattered))

    def _merged_report(self, sender: Address, message: Merged) -> None:
        self._note(message.stats)
        self._latencies.append(message.latency)
        self._schemas[sender.index] = message.schema
        if len(self._schemas) == len(self._reducers):
            self._writing = len(self._reducers)
            self._broadcast(WriteResult(agreed(self._schemas[index] for index in range(self._writing))))

    def _written(self, sender: Address, message: Written) -> None:
        if not self._writing:
            raise ProtocolError(f"{self.address}: {sender} has written a share before it was told to")
        self._writing -= 1
        if not self._writing:
            self.state = "done"
            self.done_at = self.now
            self.instruct(JobDone())

    def _decision_report(self, sender: Address, message: DecisionReport) -> None:
        for told in message.decisions:
            decision = replace(told, at=told.at - (self.started_at or 0.0))
            self._decision_counts[decision.outcome.value] += 1
            if decision.epoch is None:
                self._refused.append(decision)
            else:
                self._epoch = decision.epoch
                self._applied.append(decision)

    def _tick(self, sender: Address, event: Tick) -> None:
        if self.state == "stream":
            self._history.add(self._at, self._reducers)
            self._check_progress()
            if not self._frozen and self._rounds.due(self.now):
                self._broadcast(self._rounds.begin(self.now))

    def _check_progress(self) -> None:
        """Fail rather than wait for ever for records that were lost: nobody has any, yet some are not processed."""
        queued = sum(stats.queue for stats in self._reducers)
        if queued or self._frozen or len(self._mappers_done) < len(self._mappers):
            self._progress_at = self.now
        elif self.now - self._progress_at > _LOST_SECONDS:
            lost = self.emitted - self.processed
            raise ProtocolError(
                f"{lost} of {self.emitted} records were lost: no reducer has had any for {_LOST_SECONDS:g} s"
            )

    def _note(self, stats: ReducerStats) -> None:
        if stats.processed > self._reducers[stats.reducer].processed:
            self._progress_at = self.now
        self._reducers[stats.reducer] = stats
        if self.first_record_at is None and stats.processed:
            self.first_record_at = self.now

    def _broadcast(self, message: Aggregate | Drain | Merge | WriteResult) -> None:
        for index in range(len(self._reducers)):
            self.send(reducer(index), message)
