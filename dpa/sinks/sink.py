"""Sinks: where the rows of a result go, at the end of a job or of each epoch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import pyarrow as pa

from dpa._util.lines import Line
from dpa.errors import TableError
from dpa.execution.publishing import Publishes
from dpa.routing.keys import KeyName

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Newest:
    """What of a job is at a place.

    Attributes:
        epoch: the newest one that was committed with a checkpoint, which the job's last is not; 0 if there is none.
        line: the sink's `line` when it was committed; empty if unknown.
        is_last: whether the job's last epoch is there too.
    """

    epoch: int
    line: Line = ()
    is_last: bool = False


@dataclass(frozen=True)
class SinkContext:
    """What a sink knows of the job that writes to it.

    Attributes:
        job: the job's unique name, also when it is resumed.
        key: the column that identifies a row, or the names of several; none where several rows may have one key.
        publishes: what of a result is published by epoch; None: the whole, once, at the end.
        with_checkpoints: whether an epoch is committed when a checkpoint names what was staged of it. Then each epoch
            is committed once, even if processes die.
        line: who made the epochs up to the newest checkpoint. A place that keeps it can distinguish an epoch from
            another one with the same number.
    """

    job: str = ""
    key: KeyName = ()
    publishes: Publishes | None = None
    with_checkpoints: bool = False
    line: Line = ()


@dataclass(frozen=True)
class Target:
    """What a job file says of where rows go in a format.

    Attributes:
        path: a directory, a URI, or a name that the format knows.
        mode: what becomes of rows that are there: `error`, `overwrite` or `append`.
        args: the format's own options.
        section: the key path of all this, for messages.
        mark: returns the job's configuration, as text to be kept beside the rows.
        publishes: what each epoch publishes; None: there is one result, at the end.
        private: whether others may not read what this process stages.
        files: how rows lie in files, in the words of `FileLayout`.
    """

    path: str
    mode: str = "error"
    args: Mapping[str, Any] = field(default_factory=dict)
    section: str = "output"
    mark: Callable[[], str] = str
    publishes: Publishes | None = None
    private: bool = False
    files: Mapping[str, Any] = field(default_factory=dict)


class _Known(Generic[_Value]):
    """A field of a sink's context. A sink's own attribute of that name hides it, and stays the sink's."""

    def __init__(self, of: Callable[[SinkContext], _Value]) -> None:
        self._of = of

    def __get__(self, sink: Sink, kind: type[Sink]) -> _Value:
        return self._of(sink.job_context)


class Sink(ABC):
    """Where rows go: tasks stage them, wherever they run, and one commit shows all that was staged.

    Made once for a run, and all checks before it. Called in this order:

    - `know`, as soon as the job has its name, maybe more than once;
    - `check`, before anything is started, maybe more than once;
    - `expect`, if the columns are known by then, maybe more than once, also after what follows;
    - `begin`;
    - `stage`, by each task that has rows, of copies that were pickled after `begin`;
    - `commit`, when all tasks have staged. The coordinator commits epochs, of a copy too, unless `in_driver`; the last
      one is committed where the job was started;
    - `abort`, in the end, also after a success.

    If a process dies, the job begins again: `abort`, `begin`, and new copies. What older copies still stage must not be
    committed.

    What is committed together has one `epoch`, a growing number. The last one has all of a result, or what no epoch
    before has published of it. Rows may be staged for an epoch that is never committed, or by a process that has died
    since. An epoch may be committed again, by this object or, if a job continues `with_checkpoints`, by another one
    with the same `job`. That must change nothing, and nor must any commit after the last one. If a job starts again at
    the beginning of its input, its epochs start at 1 again.

    All methods, and `place`, may raise `TableError`, with what is wrong and what would be right. Any other exception is
    reported with its type.

    Attributes:
        job_context: what `know` was given last. Its fields can be read as `self.job`, `self.key` and so on.
        in_driver: whether epochs are committed in the process that runs the job, by the object that was made there.
    """

    job_context = SinkContext()
    in_driver = False
    job = _Known(lambda context: context.job)
    key = _Known(lambda context: context.key)
    publishes = _Known(lambda context: context.publishes)
    with_checkpoints = _Known(lambda context: context.with_checkpoints)
    line = _Known(lambda context: context.line)

    def know(self, context: SinkContext) -> None:
        """Write for this job. Its `line` is complete only before an epoch is committed."""
        self.job_context = context

    @property
    def place(self) -> str | None:
        """Where committed rows are, for messages; None: in memory, where `read` finds them."""
        return type(self).__name__

    def replaces(self, mode: str, *, has_begun: bool) -> bool:
        """Whether a commit replaces all rows of a table, with the `mode` of a job file; `has_begun`: whether the table
        has rows of this job since it began at the start of its input."""
        if self.publishes == "table":
            return True
        return not has_begun and (mode == "overwrite" or (mode == "error" and self.publishes is not None))

    def check(self) -> None:  # noqa: B027 - need not be overridden
        """Check that rows may go there. Nothing is written."""

    def expect(self, columns: pa.Schema) -> None:  # noqa: B027
        """Check that rows with these columns may go there, before there are any; null stands for an unknown type."""

    def begin(self) -> None:  # noqa: B027
        """Prepare to be staged to."""

    @abstractmethod
    def stage(self, rows: pa.Table, task: int, epoch: int) -> Any:
        """Keep one task's rows aside, where readers do not see them; returns what `commit` must know of them.

        A task stages once an epoch, and has at least one row. Of a result without rows one task stages the columns."""

    @abstractmethod
    def commit(
        self, staged: Sequence[Any], epoch: int, seconds: float, *, is_last: bool = False
    ) -> Sequence[str] | None:
        """Show readers what was staged, all of it or, if this raises, none; returns the names of files, if there are.

        Args:
            staged: what `stage` returned, in the order of the tasks.
            epoch: of what was staged.
            seconds: since the stream began.
            is_last: whether the job will commit no more.
        """

    def abort(self) -> None:  # noqa: B027
        """Remove what was staged and not committed. Called also after `begin` has raised: another job may stage to the
        same place, so remove only what this object has made. An exception becomes a warning."""

    def newest(self) -> Newest | None:
        """What of this job is there; None: nothing, or the sink does not know. Asked before `begin` of a resumed job,
        and of a job that begins from a checkpoint: it is refused if the checkpoint is older than what is there."""
        return None

    def take_back(self, epoch: int, *, is_trial: bool) -> None:
        """Remove what was published after an epoch, the last one of the job's newest checkpoint. From then on `newest`
        gives that epoch. Called only if `newest` gives a later one, and again if the process was killed.

        Args:
            epoch: the one to go back to.
            is_trial: only check whether it can be done.

        Raises:
            TableError: it cannot be done.
        """
        raise TableError(f"what was published at {self.place} cannot be taken back")

    def read(self, staged: Sequence[Any]) -> pa.Table:
        """What was staged and is not committed yet, for a comparison with a reference.

        Raises:
            TableError: it cannot be read back, as in a sink that does not override this.
        """
        raise TableError(f"{type(self).__name__} has no `read`, so its rows cannot be compared with a reference")


@dataclass(frozen=True)
class EpochLogOptions:
    """Where the log of a job by epoch is.

    Attributes:
        place: its directory, or prefix of object storage, for this job alone.
        job: the unique name of the job.
        config: the text of its configuration, for readers of the log.
    """

    place: str
    job: str
    config: str


def together(tables: Iterable[pa.Table]) -> pa.Table:
    """The rows of some tables; a column that one lacks is null there.

    Raises:
        TableError: the types of a column have no common type.
    """
    found = [table for table in tables if table.num_columns]
    if not found:
        return pa.table({})
    try:
        return pa.concat_tables(found, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise TableError(f"the rows of several epochs or tasks are no table: {error}") from None
