"""A stage whose number of tasks follows its work, measured at the ticks of the coordinator: `dpa.balance.elastic`
decides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from dpa.balance.elastic import ElasticOptions, ElasticPolicy, Scaling, StageWork
from dpa.protocol.stage_progress import StageProgress

_LOOK_SECONDS = 1.0
"""From one look to the next: tasks report several times meanwhile."""


class Elasticity:
    """One stage.

    Attributes:
        counts: how often it was decided not to change anything, by reason.
    """

    def __init__(self, stage: StageProgress, options: ElasticOptions) -> None:
        self.counts: Counter[str] = Counter()
        self._stage = stage
        self._policy = ElasticPolicy(options)
        self._looked_at: float | None = None
        self._busy: Mapping[int, float] = {}

    def changed(self, seconds: float) -> None:
        """The tasks of the stage have changed, in so many seconds."""
        self._looked_at = None
        self._policy.changed(seconds)

    def abandoned(self) -> None:
        """No task could be started for what was decided last."""
        self.counts["a task did not start"] += 1
        self._looked_at = None
        self._policy.forget()

    def tick(self, now: float, cores_busy: float, seconds_left: float | None) -> Scaling | None:
        """The decision to change the number of tasks, if it is time to look and there is one; `cores_busy` and
        `seconds_left` as in `StageWork`."""
        stage = self._stage
        has_begun = stage.is_source or stage.began_at is not None
        if stage.is_changing or not stage.is_running or not has_begun:
            return None
        busy = {index: stage.tasks[index].busy_seconds for index in stage.members}
        before, then = self._busy, self._looked_at
        if then is None or before.keys() != busy.keys():
            self._looked_at, self._busy = now, busy
            return None
        if now - then < _LOOK_SECONDS:
            return None
        self._looked_at, self._busy = now, busy
        share = sum(busy[index] - before[index] for index in busy) / (len(busy) * (now - then))
        decision = self._policy.look(StageWork(len(busy), min(share, 1.0), cores_busy, seconds_left), now)
        if decision.tasks == len(busy):
            self.counts[decision.kind] += 1
            return None
        return decision
