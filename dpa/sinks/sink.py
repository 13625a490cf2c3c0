"""Sinks: where the rows of a result go. `parquet`, `memory` and `partial_results` beside this have the first ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from dpa.errors import TableError


class Sink(ABC):
    """Where rows go: tasks stage them, wherever they run, and what they have staged is committed all at once.

    Made once for a run and all checks before it. Called in this order: `check`, before anything is started and maybe
    more than once; `begin`; `stage`, by every task that has rows, of copies
    that were pickled after `begin`; `commit`, when all have; and `abort` at last, whatever has happened. Partial
    results are committed by the coordinator, of a copy too; a result where the job was started.

    Where a process dies, the job is begun again: `abort`, `begin`, and copies that are pickled after that. What copies
    of before still stage must not be committed.

    What is committed together has one `epoch`: 0 for the result of a job, the number of the round for partial results.
    Rows may be staged for an epoch that is never committed. Once there are checkpoints, an epoch may be committed
    again, which must then change nothing.

    All, and `place`, may raise `TableError`, with what is wrong and what would be right; any other exception is
    reported too, with its type.
    """

    @property
    def place(self) -> str | None:
        """Where the rows are once they are committed, for people; None: in memory, where `read` finds them."""
        return type(self).__name__

    def check(self) -> None:  # noqa: B027 - need not be overridden
        """Check that rows may go there. Nothing is written."""

    def begin(self) -> None:  # noqa: B027
        """Prepare to be staged to."""

    @abstractmethod
    def stage(self, rows: pa.Table, task: int, epoch: int) -> Any:
        """Keep one task's rows aside, where readers do not see them; returns what `commit` must know of them.

        A task stages once an epoch, and has at least one row; but of a result without rows one task stages the columns.
        """

    @abstractmethod
    def commit(self, staged: Sequence[Any], epoch: int, seconds: float) -> Sequence[str] | None:
        """Show readers what was staged, all of it or, if this raises, none; returns the names of files, if there are.

        Args:
            staged: what `stage` returned, in the order of the tasks.
            epoch: of what was staged.
            seconds: since the stream began.
        """

    def abort(self) -> None:  # noqa: B027
        """Leave nothing of what was staged; what was committed stays. Called where `begin` has raised, too: another job
        may stage to the same place, so only what this object has made goes. What this raises is a warning."""

    def read(self, staged: Sequence[Any]) -> pa.Table:
        """What was staged and is not committed yet, to be compared with a reference.

        Raises:
            TableError: it cannot be read back; without a method of its own a sink has no reference.
        """
        raise TableError(f"{type(self).__name__} has no `read`, so its rows cannot be compared with a reference")
