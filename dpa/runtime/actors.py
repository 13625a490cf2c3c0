"""The Ray actors: thin shells around the machines of `dpa.protocol`.

Every actor takes records and control messages in concurrency groups of their own, so control overtakes data; the
queue of records is the machine's, not Ray's mailbox. Calls carry no result (`num_returns=0`): what is to be answered
is a message.
"""

from __future__ import annotations

import resource
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import ray
from ray.actor import ActorHandle
from ray.exceptions import RayError

from dpa.disk import writing
from dpa.errors import JobFailedError, ProtocolError
from dpa.execution.empty import empty_result
from dpa.execution.key_stats import KeyStats
from dpa.execution.keys import key_column
from dpa.execution.mapping import Mapped
from dpa.execution.schemas import ShareSchema
from dpa.execution.states import Reduced, StatePart, states_for
from dpa.protocol.assembly import BalanceOptions
from dpa.protocol.coordinator import CoordinatorMachine
from dpa.protocol.load_balancer import LoadBalancerMachine
from dpa.protocol.machine import (
    Commit,
    Event,
    Finish,
    FinishDone,
    Fold,
    FoldDone,
    Instruction,
    JobDone,
    Machine,
    MapDone,
    MapNext,
    OpenSplit,
    Pack,
    PackDone,
    Process,
    ProcessDone,
    Redistribute,
    Start,
    Write,
    WriteDone,
)
from dpa.protocol.mapper import MapperMachine
from dpa.protocol.messages import BALANCER, COORDINATOR, Address, Envelope, Push, mapper, reducer
from dpa.protocol.metrics import Snapshot
from dpa.protocol.reducer import ReducerMachine
from dpa.routing.keys import Key
from dpa.routing.table import RoutingTable
from dpa.runtime import rounds
from dpa.runtime.failures import explained
from dpa.runtime.parcel import Parcel
from dpa.runtime.plan import STUCK_SECONDS, ReducerOutput, RunPlan, Shipment, Times
from dpa.runtime.shell import Shell
from dpa.runtime.slowness import Slowness
from dpa.splits import Split

Handles = dict[Address, ActorHandle]

_GROUPS = {"control": 1, "data": 1, "watch": 2}
"""`control`: messages and questions. `data`: pushed records. `watch`: calls that wait."""


def peak_memory() -> int:
    """The largest resident set of this process so far, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


class Task:
    """What all four actors have in common."""

    def __init__(self, machine: Machine, stuck_seconds: float = STUCK_SECONDS) -> None:
        self._handles: Handles = {}
        self._shell = Shell(
            machine,
            send=self._send,
            work=self._work,
            fail=self._fail,
            warn=self._warn,
            stuck_seconds=stuck_seconds,
        )

    @ray.method(concurrency_group="control")
    def connect(self, handles: Handles) -> None:
        """Learn whom to send to, and begin."""
        self._handles = handles
        self._shell.start()

    @ray.method(concurrency_group="control", num_returns=0)
    def begin_stream(self) -> None:
        """Begin, now that all tasks are up."""
        self._shell.post(Start())

    @ray.method(concurrency_group="control", num_returns=0)
    def deliver(self, parcel: Parcel) -> None:
        """Take in a control message."""
        self._shell.receive(parcel)

    @ray.method(concurrency_group="data", num_returns=0)
    def push(self, parcel: Parcel) -> None:
        """Take in records."""
        self._shell.receive(parcel)

    @ray.method(concurrency_group="watch")
    def join(self) -> None:
        """Never return: the call fails when the actor dies, which is how its death is noticed."""
        threading.Event().wait()

    @ray.method(concurrency_group="control")
    def peak_memory(self) -> int:
        """The largest resident set of the actor's process so far, in bytes."""
        return peak_memory()

    def _send(self, envelope: Envelope) -> None:
        handle = self._handles[envelope.receiver]
        method = handle.push if isinstance(envelope.message, Push) else handle.deliver
        method.remote(Parcel.of(envelope))

    def _work(self, instruction: Instruction) -> Event | None:
        raise ProtocolError(f"{type(self).__name__} cannot carry out {instruction}")

    def _fail(self, message: str) -> None:
        self._handles[COORDINATOR].fail.remote(message)

    def _warn(self, message: str) -> None:
        self._handles[COORDINATOR].warn.remote(message)


_MANY_ROWS = 100_000
"""From so many input rows on, actors import everything before they start."""


def _import_libraries(rows: int) -> None:
    """Import what blocks need while nobody waits for a record yet; what only large ones need, a small job may not."""
    pa.array([0])  # pyarrow imports pandas, if it is there, at the first array it is to make
    if rows >= _MANY_ROWS:
        import polars_hash  # noqa: F401


class Mapper(Task):
    """A mapper."""

    def __init__(self, index: int, shipment: Shipment) -> None:
        _import_libraries(shipment.rows)
        plan = shipment.unpack()
        table = plan.balance.ring(plan.reducers).snapshot(0)
        grouping = plan.grouping.create(table, index)
        super().__init__(MapperMachine(index, table, plan.in_flight_records, grouping), plan.stuck_seconds)
        self._task = plan.task
        self._steps: Iterator[Mapped] = iter(())

    def _work(self, instruction: Instruction) -> Event | None:
        match instruction:
            case OpenSplit(split):
                self._steps = self._task.blocks(split, time.perf_counter)
                return None
            case MapNext():
                return MapDone(next(self._steps, None))
        return super()._work(instruction)


class Reducer(Task):
    """A reducer."""

    def __init__(self, index: int, shipment: Shipment) -> None:
        _import_libraries(shipment.rows)
        plan = shipment.unpack()
        table = plan.balance.ring(plan.reducers).snapshot(0)
        delegation = plan.signals.delegation(plan.grouping, plan.mappers * plan.in_flight_records // plan.reducers)
        options = plan.balance.reducer_options(plan.slice_records, plan.slice_seconds, delegation)
        super().__init__(ReducerMachine(index, table, options), plan.stuck_seconds)
        self._index = index
        self._plan = plan
        self._states = states_for(plan.task.reducer)
        self._most_states = 0
        self._share: Reduced | None = None
        self._output: ReducerOutput | None = None
        self._slowness = Slowness(plan, index)

    @ray.method(concurrency_group="control")
    def output(self) -> ReducerOutput:
        """The finished share of the result."""
        assert self._output is not None
        return self._output

    def _work(self, instruction: Instruction) -> Event | None:
        match instruction:
            case Process(block, _):
                began = time.perf_counter()
                self._states.reduce(block)
                self._slowness.prolong(time.perf_counter() - began)
                return ProcessDone(time.perf_counter() - began)
            case Pack(table):
                began = time.perf_counter()
                self._most_states = max(self._most_states, self._states.size)
                parts = self._states.pack(table, self._index)
                return PackDone(parts, time.perf_counter() - began)
            case Fold(home, parts, number):
                began = time.perf_counter()
                rows = self._fold(home, parts, number)
                return FoldDone(rows, time.perf_counter() - began)
            case Finish(parts):
                self._most_states = max(self._most_states, self._states.size)
                for part in parts:
                    self._states.merge(part)
                self._share = self._states.finish(self._plan.task.key)
                self._slowness.end()
                return FinishDone(ShareSchema.of(self._share.table, self._plan.task.key))
            case Write(schema):
                self._output = self._write(schema)
                return WriteDone()
        return super()._work(instruction)

    def _fold(self, home: RoutingTable, parts: tuple[StatePart, ...], number: int) -> int:
        """Fold in states of a round of aggregation; publish this reducer's share, and return how many keys it has."""
        for part in parts:
            self._states.merge(part)
        plan, key = self._plan, self._plan.task.key
        if plan.rounds is None:
            return 0
        share = self._states.preview(key).owned(key, home, self._index).table
        rounds.write_share(plan.rounds, number, self._index, share)
        return int(share.num_rows)

    def _write(self, schema: pa.Schema | None) -> ReducerOutput:
        """Write the share in the schema of all shares. Of an empty result the first reducer writes the columns."""
        assert self._share is not None
        plan, key, reduced = self._plan, self._plan.task.key, self._share
        stands_for_all = schema is None and self._index == 0
        if schema is not None:
            reduced = reduced.in_schema(schema, key)
        elif stands_for_all:
            reduced = empty_result(plan.task, plan.columns)
        file = None
        if plan.output is not None and (reduced.table.num_rows or stands_for_all):
            file = f"part-{self._index:05d}.parquet"
            path = Path(plan.output) / file
            with writing(path):
                pq.write_table(reduced.table, path)
        keys = key_column(reduced.table, key)
        counts = pa.table({"key": keys, "records": reduced.records}) if plan.key_counts else None
        return ReducerOutput(
            rows=reduced.table.num_rows,
            states=self._most_states,
            file=file,
            table=reduced.table if plan.output is None else None,
            stats=KeyStats.of(keys, reduced.mapped),
            key_counts=counts,
            peak_memory=peak_memory(),
        )


class LoadBalancer(Task):
    """The load balancer, with the DPA paper's two calls (section 4.2) for tools and tests."""

    def __init__(self, balance: BalanceOptions, mappers: int, reducers: int) -> None:
        self._machine = LoadBalancerMachine(balance.policy(reducers), mappers)
        super().__init__(self._machine)

    @ray.method(concurrency_group="control")
    def key_lookup(self, key: Key) -> int:
        """The reducer that owns a key now."""
        return self._machine.key_lookup(key)

    @ray.method(concurrency_group="control")
    def redistribute(self, node_id: int) -> None:
        """Relieve a reducer whatever its load.

        Raises:
            BalanceError: there is no such reducer.
        """
        self._machine.require_reducer(node_id)
        self._shell.post(Redistribute(node_id))


class Coordinator(Task):
    """Creates all other actors, which live and die with it, and watches over them."""

    def __init__(
        self,
        splits: tuple[Split, ...],
        balance: BalanceOptions,
        mappers: int,
        reducers: int,
        aggregate_seconds: float | None,
        rounds: str | None,
        scattered: bool,
    ) -> None:
        self._machine = CoordinatorMachine(splits, mappers, reducers, aggregate_seconds, scattered=scattered)
        super().__init__(self._machine)
        self._balance = balance
        self._rounds = rounds
        self._mappers = mappers
        self._reducers = reducers
        self._ended = threading.Event()
        self._changed = threading.Event()
        self._error: str | None = None
        self._warnings: list[str] = []
        self._started = time.time()

    @ray.method(concurrency_group="watch")
    def begin(self, own_handle: ActorHandle, shipment: Shipment) -> None:
        """Create the other actors, connect all of them, and start the stream."""
        shared = ray.put(shipment)
        handles: Handles = {COORDINATOR: own_handle}
        for index in range(self._mappers):
            handles[mapper(index)] = _create(Mapper, index, shared)
        for index in range(self._reducers):
            handles[reducer(index)] = _create(Reducer, index, shared)
        handles[BALANCER] = _create(LoadBalancer, self._balance, self._mappers, self._reducers)
        others = {address: handle for address, handle in handles.items() if address != COORDINATOR}
        _connect(others, handles)
        self.connect(handles)
        threading.Thread(target=self._watch, args=(others,), name="watch", daemon=True).start()
        self._shell.post(Start())
        for index in range(self._mappers):
            handles[mapper(index)].begin_stream.remote()

    @ray.method(concurrency_group="watch")
    def poll(self, seconds: float) -> tuple[Snapshot, list[str], str | None]:
        """Statistics, without their history, new warnings, and the error if there is one: after so many seconds, or at
        the end."""
        self._changed.wait(seconds)
        with self._shell.lock:
            warnings, self._warnings = self._warnings, []
            return self._machine.snapshot(history=False), warnings, self._error

    @ray.method(concurrency_group="control")
    def outcome(self) -> tuple[Snapshot, Times, list[Any], list[Any]]:
        """Of a finished job: all statistics, the moments, and references to the reducers' outputs and mappers'
        memory."""
        with self._shell.lock:
            machine, snapshot = self._machine, self._machine.snapshot()
            times = Times(
                started=self._started,
                stream_started=machine.started_at or machine.now,
                first_record=machine.first_record_at,
                stream_ended=machine.stream_ended_at or machine.now,
                merged=machine.done_at or machine.now,
            )
        reducers = [self._handles[reducer(index)] for index in range(self._reducers)]
        mappers = [self._handles[mapper(index)] for index in range(self._mappers)]
        outputs = [handle.output.remote() for handle in reducers]
        return snapshot, times, outputs, [handle.peak_memory.remote() for handle in mappers]

    @ray.method(concurrency_group="control")
    def balancer(self) -> ActorHandle:
        """The load balancer's handle."""
        return self._handles[BALANCER]

    @ray.method(concurrency_group="control", num_returns=0)
    def fail(self, message: str) -> None:
        """End the job with an error; the first one counts."""
        with self._shell.lock:
            self._error = self._error or message
            self._machine.state = "failed"
        self._shell.stop()
        self._changed.set()

    @ray.method(concurrency_group="control", num_returns=0)
    def warn(self, message: str) -> None:
        """Pass on what the user should know while the job goes on."""
        with self._shell.lock:
            self._warnings.append(message)

    @ray.method(concurrency_group="watch")
    def close(self) -> None:
        """End all other actors."""
        self._ended.set()
        self._shell.stop()
        for address, handle in self._handles.items():
            if address != COORDINATOR:
                ray.kill(handle)

    def _work(self, instruction: Instruction) -> Event | None:
        match instruction:
            case Commit(number, at, rows):
                if self._rounds is not None:
                    rounds.commit(self._rounds, number, at, rows)
                return None
            case JobDone():
                self._changed.set()
                return None
        return super()._work(instruction)

    def _fail(self, message: str) -> None:
        self.fail(message)

    def _warn(self, message: str) -> None:
        self.warn(message)

    def _watch(self, others: Handles) -> None:
        """Wait for the first actor that dies."""
        joins = {handle.join.remote(): address for address, handle in others.items()}
        while not self._ended.is_set():
            ended, _ = ray.wait(list(joins), timeout=1.0)
            for reference in ended:
                try:
                    ray.get(reference)
                except Exception as error:
                    if not self._ended.is_set():
                        told = explained(error) if isinstance(error, RayError) else repr(error)
                        self.fail(f"{joins[reference]} died: {told}")
                    return


def _create(actor: type[Task], *arguments: Any) -> ActorHandle:
    """A new actor. Tasks ask for no CPU, so a job never waits for ever for a busy cluster; they are spread over its
    nodes."""
    options = {"num_cpus": 0, "concurrency_groups": _GROUPS, "scheduling_strategy": "SPREAD", "max_restarts": 0}
    return ray.remote(**options)(actor).remote(*arguments)


def _connect(others: Handles, handles: Handles) -> None:
    """Tell every actor whom to send to; the first call that it answers, so it is also when it is known to be up."""
    connected = {address: handle.connect.remote(handles) for address, handle in others.items()}
    for address, reference in connected.items():
        try:
            ray.get(reference)
        except RayError as error:
            raise JobFailedError(f"{address} did not start: {explained(error)}") from None


def create_coordinator(plan: RunPlan) -> ActorHandle:
    """The coordinator's actor, not yet begun."""
    tasks, rounds = (plan.mappers, plan.reducers), (plan.aggregate_seconds, plan.rounds)
    scattered = plan.grouping.leaves_home(aggregates=plan.aggregate_seconds is not None)
    return _create(Coordinator, plan.splits, plan.balance, *tasks, *rounds, scattered)
