"""What sinks have in common whose rows another package writes. Each epoch is written once."""

import uuid
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from dpa._util import lines
from dpa.errors import TableError
from dpa.sinks.sink import Sink, SinkContext, Target

EPOCH, SECONDS = "dpa.epoch", "dpa.seconds"
"""Properties of a table: the number of its newest epoch, and the seconds from the stream's beginning to its end."""

LIFE, LINE, LAST = "dpa.life", "dpa.line", "dpa.last"
"""And the life of the job that wrote it, the makers of the epochs up to it, and whether it is the job's last."""


class PackageSink(Sink):
    """A sink that notes at its place which epochs are there."""

    def __init__(self, to: Target) -> None:
        self.know(SinkContext(uuid.uuid4().hex))
        self._mode, self._section, self._options = to.mode, to.section, dict(to.args)
        self._begun = ""

    def begin(self) -> None:
        self._begun = uuid.uuid4().hex

    @property
    def _life(self) -> str:
        """Changes whenever the job is begun anew at the start of its input; as the job where there are no epochs."""
        if self.publishes is None:
            return self.job
        return f"{self.job}.epochs" if self.with_checkpoints else f"{self.job}.{self._begun}"

    def _about(self, epoch: int, *, is_last: bool) -> dict[str, str]:
        """What identifies an epoch in a later run."""
        line = {} if is_last else {LINE: lines.as_text(lines.until(self.line, epoch))}
        return {LIFE: self._life, **line} if self.with_checkpoints else {}

    def _first_after(self, epoch: int, commits: Iterable[tuple[int, Mapping[str, str], bool]]) -> tuple[int, str]:
        """The first commit of this job after an epoch, and the line until that epoch, as text. Raises TableError if
        others have written since, or too little is known.

        Args:
            epoch: of this job.
            commits: of the table, the newest first: number, properties, and whether it leaves rows as they are.
        """
        first, line, is_shared = None, "", False
        for number, about, is_upkeep in commits:
            if about.get(LIFE) != self._life:
                is_shared |= not is_upkeep
                continue
            line = line or about.get(LINE, "")
            if LINE in about and int(about[EPOCH]) <= epoch:  # what came last has none
                break
            if is_shared:
                raise TableError(f"others have written to {self.place} since epoch {epoch}, and would be undone")
            first = number
        if first is None:
            raise TableError(f"the commits of {self.place} do not say what was there at epoch {epoch}")
        return first, lines.as_text(lines.until(lines.from_text(line), epoch))

    def _has_rows(self) -> TableError:
        remedy = f"set {self._section}.mode to `append` or `overwrite`, or name another table"
        return TableError(f"{self.place} has rows: {remedy}")


class TableSink(PackageSink):
    """A table, which is made if there is none.

    Attributes:
        kind: the name of the format, and the package that writes it.
    """

    kind: tuple[str, str]

    @contextmanager
    def reaching(self) -> Iterator[None]:
        """Use the package, whose extra has the format's name in lower case. Raises TableError if the package has
        failed, or is not installed."""
        tables, package = self.kind
        try:
            yield
        except ImportError:
            raise TableError(f"{tables} tables need {package}: pip install 'dpa[{tables.lower()}]'") from None
        except TableError:
            raise
        except Exception as error:  # packages raise errors of their own catalogs and languages, and bare ones
            said = next(iter(str(error).splitlines()), type(error).__name__)
            raise TableError(f"{said}, at {self.place}") from None

    @abstractmethod
    def table(self) -> Any:
        """The table; None: there is none."""

    @abstractmethod
    def newest_epoch(self, table: Any) -> Mapping[str, Any] | None:
        """The properties of the newest epoch; None: there is none."""

    @abstractmethod
    def rows_of(self, table: Any) -> pa.Table: ...
