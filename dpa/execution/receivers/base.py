"""Receivers take the records of a stage; all that depends on their kind is here.

The columns of a receiver's rows are checked before a run, if they can be known. Batch executors are run on no rows,
which shows all types. A per-record reducer is asked for the result of its `zero`. Functions of a record give no columns
before they are called."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from dpa._util.declared import Declared
from dpa._util.inference import no_rows
from dpa.aggregates import READY_MADE
from dpa.errors import ConfigError, ExecutorError
from dpa.execution.block import Block, Values
from dpa.execution.states import States
from dpa.execution.windowing import Windowing
from dpa.executors import Groups, name_of
from dpa.operators import MAKING, RowOperator
from dpa.routing.keys import KeyName, key_type
from dpa.tolerance import Tolerance

if TYPE_CHECKING:
    import polars as pl


class Extent(IntEnum):
    """How much is known of the columns of rows: some of them, all names, or types too."""

    SOME, NAMES, ALL = 0, 1, 2


@dataclass(frozen=True)
class Known:
    """What is known of the columns of rows, and how much. The type null means unknown."""

    schema: pa.Schema
    extent: Extent = Extent.ALL

    @property
    def has_names(self) -> bool:
        """Whether there are no other columns, so that a missing one is an error."""
        return self.extent >= Extent.NAMES

    def with_names(self, names: Iterable[str]) -> Known:
        """Add null columns of these names, if there may be more columns than are known."""
        if self.has_names:
            return self
        missing = dict.fromkeys(name for name in names if name not in self.schema.names)
        return Known(pa.schema([*self.schema, *((name, pa.null()) for name in missing)]), self.extent)


NOTHING_KNOWN = Known(pa.schema([]), Extent.SOME)


def as_declared(found: Known, declared: Declared | None, giver: str, names: Sequence[str] = ()) -> Known:
    """The declared columns of rows that the method `giver` returns, after the key columns `names`; without a
    declaration, `found`. Raises ConfigError if they contradict `found`."""
    if declared is None:
        return found
    key = [found.schema.field(name) for name in names]
    for field in declared.schema:
        kept = key_type(field.type) if field.name in names else field.type
        if kept != field.type:
            raise ConfigError(f"the key column {field.name!r} is kept as {kept}: declare it so", declared.place)
    if found.extent is Extent.ALL:
        try:
            declared.conformed(no_rows(found.schema), giver, names)
        except ExecutorError as error:
            raise ConfigError(error.message, error.key) from None
    others = [field for field in declared.schema if field.name not in names]
    own = [declared.schema.field(field.name) if field.name in declared.schema.names else field for field in key]
    return Known(pa.schema([*own, *others]))


@dataclass(frozen=True)
class Receiver(ABC):
    """Each task of a stage has a copy. The defaults here hold for most kinds.

    Attributes:
        executors: the classes of the executors that make a receiver of this kind.
        noun: what messages call such an executor.
        word: the key of a job file that names it.
        keeps_states: whether it keeps a state for each key.
        takes_objects: whether values come as Python objects rather than as columns.
        has_sides: whether records are of one of two sides.
        needs_order: whether its rows depend on the order of the records of a key.
        keeps_order: whether one task emits rows in the order of the records that it takes.
        emits_when_closed: whether in windows it gives no row before they are closed.
        gives_key: whether its rows have the key columns.
        has_row_a_key: whether no two of its rows have the same key.
        may_lack_columns: whether the rows of one task may lack columns that those of others have.
        unmergeable: why two states of a key cannot be merged, where they cannot, as a message continues its name.
        executor: what does the work; None where nothing has to be done.
        declared: the columns that its rows are declared to have, or None.
        tolerance: how errors of the executor are tolerated; None: they fail the job.
        windowing: of what windows the last parts of keys are; None: keys have none.
    """

    executors: ClassVar[tuple[type, ...]] = ()
    noun: ClassVar[str] = "a reducer"
    word: ClassVar[str] = "reduce"
    keeps_states: ClassVar[bool] = True
    takes_objects: ClassVar[bool] = False
    has_sides: ClassVar[bool] = False
    needs_order: ClassVar[bool] = False
    keeps_order: ClassVar[bool] = False
    emits_when_closed: ClassVar[bool] = True
    gives_key: ClassVar[bool] = True
    has_row_a_key: ClassVar[bool] = False
    may_lack_columns: ClassVar[bool] = False
    unmergeable: ClassVar[str] = "has no `merge`; give it one, or"

    executor: Any = None
    declared: Declared | None = None
    tolerance: Tolerance | None = None
    windowing: Windowing | None = None

    @property
    def can_merge(self) -> bool:
        """Whether two states of a key can be merged; True without states."""
        return True

    @property
    def reads(self) -> tuple[str, ...]:
        """The value columns that it needs, if it can say."""
        return ()

    @property
    def has_timers(self) -> bool:
        """Whether it has timers in event time."""
        return False

    @property
    def operators(self) -> tuple[RowOperator, ...]:
        return ()

    @property
    def expected_seconds(self) -> float | None:
        """Seconds for a record, approximately, before any is measured; None if unknown."""
        return None

    def does(self, by: str) -> str:
        """In a few words; `by`: the key columns, empty if all records have one key."""
        name = name_of(self.executor).rpartition(".")[2]
        return f"{self.word} {name} {f'by {by}' if by else 'of all records'}"

    def check_values(self, values: pa.Schema) -> None:  # noqa: B027  (optional)
        """Raises ConfigError if it cannot process these columns, known before the job starts. The message continues the
        executor's name."""

    def noting(self, outside: Tolerance) -> Receiver:
        """The same receiver; records in no window or a closed one are noted in `outside`."""
        return self if self.windowing is None else replace(self, windowing=replace(self.windowing, late=outside))

    @property
    def is_opaque(self) -> bool:
        """Whether only rows show the columns of user code, as none are declared."""
        made = [each for each in self.operators if each.kind in MAKING and not each.on_batches]
        gives = self.takes_objects and type(self.executor) not in READY_MADE.values()
        return (gives and self.declared is None) or any(each.declared is None for each in made)

    @abstractmethod
    def columns(self, key: KeyName, blocks: Sequence[Block], extent: Extent) -> Known:
        """The columns of its rows, if they can be known before there are any. Raises ExecutorError if a column has the
        name of a key column; ConfigError if the known columns are not those declared.

        Args:
            key: name of the key column, or names of several.
            blocks: for each edge a block without records, of the types of those that will come: the same for all
                edges of one side.
            extent: how much is known of the columns of their values.
        """

    @property
    def has_sessions(self) -> bool:
        return self.windowing is not None and self.windowing.windows.is_session

    @property
    def takes_apart(self) -> bool:
        """Whether each record comes as its own session: a bad record must not join others."""
        return self.has_sessions and self.tolerance is not None

    @abstractmethod
    def own_store(self) -> States[Any]:
        """An empty store without windows; `store_of` returns one with windows."""

    @property
    def has_partials(self) -> bool:
        """Whether a query can give states: whether there are `partials`."""
        return False

    def partials(self, values: pl.Schema) -> Sequence[pl.Expr]:
        """As of a batch reducer; none of others."""
        return ()

    def merged(self, groups: Groups) -> pa.RecordBatch:
        """The states of groups of states, where there are partials."""
        raise NotImplementedError(f"{self.noun} has no partial states")

    def combined(self, block: Block) -> Values:
        """The state of each key, shape (keys,), which a combiner sends instead of records. Raises ExecutorError."""
        raise NotImplementedError(f"records of {self.noun} cannot be combined")
