"""The answer to `status`: the stages of a running job, with the nodes and processes of their tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dpa.protocol.wire.addresses import Address
from dpa.protocol.wire.metrics import Snapshot, StageSnapshot
from dpa.protocol.wire.nodes import BackendNode, TaskProcess


@dataclass(frozen=True)
class ProcessStatus:
    """The process of a task: the name of its node, and its number there; empty and None where a task is not up."""

    node: str = ""
    pid: int | None = None


@dataclass(frozen=True)
class StageStatus:
    """A stage of a running job: its tasks by number, the records in their queues, and the processes of these tasks."""

    name: str
    phase: str
    tasks: tuple[int, ...]
    queued: int
    processes: tuple[ProcessStatus, ...]


@dataclass(frozen=True)
class Status:
    """A running job; `at`: seconds since its stream began; `processors`: of all nodes of the cluster; `generation`: how
    often it was begun again after the death of a process."""

    job: str
    phase: str
    at: float
    stages: tuple[StageStatus, ...]
    processors: float
    generation: int = 0

    @staticmethod
    def of(
        job: str, snapshot: Snapshot, processes: Mapping[Address, TaskProcess], nodes: Sequence[BackendNode]
    ) -> Status:
        """`processes` may hold those of tasks that have gone; `nodes` are all of the cluster."""
        names = {node.id: node.name for node in nodes}

        def process(address: Address) -> ProcessStatus:
            found = processes.get(address)
            return ProcessStatus() if found is None else ProcessStatus(names.get(found.node, found.node), found.pid)

        def stage(found: StageSnapshot) -> StageStatus:
            where = tuple(process(Address(found.name, task)) for task in found.present)
            return StageStatus(found.name, found.phase, found.present, found.queue, where)

        processors = sum(node.processors for node in nodes)
        return Status(
            job, snapshot.phase, snapshot.at, tuple(map(stage, snapshot.stages)), processors, snapshot.generation
        )
