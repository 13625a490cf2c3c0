"""The end of a stage: its last table, its last exchange, and the schema and the figures of its tasks' shares."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from dpa.execution.schemas import agreed
from dpa.measure.latency import LatencySketch
from dpa.protocol.graph import Stage
from dpa.protocol.wire.messages.end import Finished
from dpa.protocol.wire.messages.members import Left


class StageEnd:
    """What tasks say of their shares when these are finished, or when they leave.

    Attributes:
        last_version: of the stage's last table; None: more may come.
        latency: seconds from source to processed of all records of these tasks.
        stage_latency: the same from emitted to processed.
    """

    def __init__(self, stage: Stage) -> None:
        self.last_version: int | None = None
        self.latency = LatencySketch()
        self.stage_latency = LatencySketch()
        self._stage = stage
        self._shares: dict[int, Finished] = {}

    def moves_states(self, version: int) -> bool:
        """Whether a state may be elsewhere than with the owner of its key by the table of this version, the newest."""
        return not self._stage.migrates and (version > 0 or self._stage.moves_states)

    def finished(self, task: int, message: Finished) -> None:
        self.add_latencies(message)
        self._shares[task] = message

    def add_latencies(self, message: Finished | Left) -> None:
        self.latency.merge(message.latency)
        self.stage_latency.merge(message.stage_latency)

    def all_finished(self, members: Collection[int]) -> bool:
        return self._shares.keys() >= {*members}

    def schema(self, members: Collection[int]) -> pa.Schema | None:
        return agreed(self._shares[index].schema for index in members)

    def initial_load(self, members: Collection[int]) -> tuple[int, ...]:
        """Of the processed records, how many each task would have had by the plain ring; empty while it is not
        known."""
        loads = [share.initial_load for share in self._shares.values()]
        if not self.all_finished(members) or not all(loads):
            return ()
        return tuple(sum(load) for load in zip(*loads, strict=True))
